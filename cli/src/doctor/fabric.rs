//! The NVLink fabric, as NVML and the machine tell of it: whether GPUs have joined it, and the services that it needs.

use super::lines::{Known, Verdict};
use super::place::Services;
use super::report::{Examined, Row};
use crate::nvml::Fabric;

/// Why the fabric does not join two GPUs, or not well.
pub(super) fn cause(known: &[Known], pair: [usize; 2]) -> Option<String> {
    let fabrics = pair.map(|ordinal| known.get(ordinal)?.fabric.as_ref());
    for (ordinal, fabric) in pair.into_iter().zip(fabrics) {
        if let Some(trouble) = fabric.and_then(Fabric::trouble) {
            return Some(format!("the NVLink fabric of GPU {ordinal} is not well ({trouble}). {}", remedy(fabric?)));
        }
    }
    let ([Some(one), Some(other)], [from, to]) = (fabrics, pair) else { return None };
    if !one.is_completed() || !other.is_completed() {
        return None;
    }
    if one.cluster != other.cluster {
        return Some(format!("GPU {from} and {to} are in different clusters of the NVLink fabric: use one"));
    }
    (one.clique != other.clique).then(|| {
        format!(
            "GPU {from} is in clique {} of the NVLink fabric, GPU {to} in clique {}: use one partition",
            one.clique, other.clique
        )
    })
}

/// The remedy for a GPU that has not joined, or is not well.
fn remedy(fabric: &Fabric) -> &'static str {
    if fabric.is_completed() {
        "Restart nvidia-fabricmanager, then reset the GPUs; its log says more"
    } else {
        "Start nvidia-fabricmanager of the driver's version; in a virtual machine, the host does"
    }
}

/// Hints about the fabric.
pub(super) fn hints(known: &[Known], examined: &Examined) -> Vec<String> {
    let mut hints: Vec<String> = Vec::new();
    let mut troubles: Vec<(String, &Fabric, Vec<String>)> = Vec::new();
    for (ordinal, fabric) in known.iter().enumerate().filter_map(|(ordinal, it)| Some((ordinal, it.fabric.as_ref()?))) {
        let Some(trouble) = fabric.trouble() else { continue };
        match troubles.iter_mut().find(|(known, ..)| *known == trouble) {
            Some((.., gpus)) => gpus.push(ordinal.to_string()),
            None => troubles.push((trouble, fabric, vec![ordinal.to_string()])),
        }
    }
    for (trouble, fabric, gpus) in &troubles {
        hints.push(format!("Hint: NVLink fabric of GPU {}: {trouble}. {}.", gpus.join(" "), remedy(fabric)));
    }
    let pairs = (0..known.len()).flat_map(|one| (one + 1..known.len()).map(move |other| [one, other]));
    let apart = pairs.filter(|_| troubles.is_empty()).find_map(|pair| cause(known, pair));
    hints.extend(apart.map(|apart| format!("Hint: {apart}.")));
    let spans = known.iter().filter_map(|known| known.fabric.as_ref()).any(|fabric| fabric.cluster.is_some());
    if let (true, Some(Services { imex, channels, .. })) = (spans, &examined.services)
        && (channels.is_empty() || (!imex && examined.container.is_none()))
    {
        let lacks = if channels.is_empty() { "no channel in /dev/nvidia-caps-imex-channels" } else { "no nvidia-imex" };
        hints.push(format!(
            "Hint: the NVLink fabric spans machines, and IMEX is not ready: {lacks}. Start nvidia-imex, create channel0, and give it to containers."
        ));
    }
    let is_virtual = |ordinal: usize| known.get(ordinal).is_some_and(|known| known.virtualization == Some(2));
    let is_apart = |row: &Row| row.verdict == Verdict::NoPath && row.pair.into_iter().all(is_virtual);
    if examined.rows.iter().any(is_apart) {
        hints.push(
            "Hint: vGPUs reach each other by NVLink only, time-sliced, with a GPU's whole memory each.".to_owned(),
        );
    }
    hints
}
