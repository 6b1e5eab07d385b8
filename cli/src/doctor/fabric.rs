//! The NVLink fabric, as NVML and the machine tell of it: whether GPUs have joined it, and the services that it needs.

use super::lines::{Known, Verdict};
use super::place::Services;
use super::report::{Examined, Row};
use crate::nvml::Fabric;

/// The trouble with the fabric of the first of these GPUs that have any.
pub(super) fn trouble(known: &[Known], gpus: &[usize]) -> Option<String> {
    gpus.iter().find_map(|&ordinal| known.get(ordinal)?.fabric.as_ref()?.trouble())
}

/// Why the fabric does not join two GPUs, or more with such trouble, or not well.
pub(super) fn cause(known: &[Known], gpus: &[usize]) -> Option<String> {
    let fabric = |ordinal: usize| known.get(ordinal)?.fabric.as_ref();
    if let Some(trouble) = trouble(known, gpus) {
        let is_in_it = |&&ordinal: &&usize| fabric(ordinal).and_then(Fabric::trouble).as_ref() == Some(&trouble);
        let mut found: Vec<&usize> = gpus.iter().filter(is_in_it).collect();
        found.sort_unstable();
        let remedy = remedy(fabric(**found.first()?)?);
        let found = found.into_iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
        return Some(format!("the NVLink fabric of GPU {found} is not well ({trouble}). {remedy}"));
    }
    let &[from, to, ..] = gpus else { return None };
    let (one, other) = (fabric(from)?, fabric(to)?);
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

/// Hints about the fabric, unless it is the gate that is named for pairs.
pub(super) fn hints(known: &[Known], examined: &Examined) -> Vec<String> {
    let is_told = |row: &Row| row.verdict == Verdict::NoPath && cause(known, &row.pair).is_some();
    if examined.rows.iter().any(is_told) {
        return Vec::new();
    }
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
    let apart = pairs.filter(|_| troubles.is_empty()).find_map(|pair| cause(known, &pair));
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
    hints
}
