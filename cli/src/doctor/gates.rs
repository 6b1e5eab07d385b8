//! The gates that keep two GPUs apart: for each pair without peer access the first closed one, and what opens it. Words and sources are in
//! gates.tsv; here is how each is seen.

use std::sync::LazyLock;

use p2pshim_host::machine::{By, Machine, Translation};
use p2pshim_host::text::Escaped;

use super::fabric;
use super::lines::{Known, Verdict};
use super::place::Joint;
use super::report::{Examined, Row, short};
use crate::nvml::{CHIPSET, GPU_UNFIT, OK, REGISTRY, TOPOLOGY, status_word};

pub(super) const TABLE: &str = include_str!("gates.tsv");
/// From this CUDA on `cuDeviceCanAccessPeer` is reported to ask about IOMMU and ACS, unless the variable is set. No primary source was found.
const ASKS: i32 = 13_050;
pub(super) const OVERRIDE: &str = "CUDA_DISABLE_IOMMU_ACS_P2P_CAPABILITY_CHECK";
/// GeForce boards from this compute capability on have no peer access by PCI.
const GEFORCE: (i32, i32) = (7, 5);

/// A gate: its word for programs, what is seen of it, and what opens it.
pub(super) struct Gate {
    pub(super) word: &'static str,
    what: &'static str,
    todo: &'static str,
}

/// In the order in which they close.
pub(super) static GATES: LazyLock<Vec<Gate>> = LazyLock::new(|| {
    let rows = TABLE.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect::<Vec<_>>());
    let gate = |row: Vec<&'static str>| match row[..] {
        [word, what, todo, _] => Some(Gate { word, what, todo }),
        _ => None,
    };
    rows.filter_map(gate).collect()
});

/// The facts about a pair.
struct Facts<'a> {
    examined: &'a Examined,
    known: &'a [Known],
    pair: [usize; 2],
    /// The GPUs that the words are about: those of the pair, or of all pairs that the gate keeps apart.
    gpus: Vec<usize>,
    /// NVML's statuses: reads and writes.
    statuses: [Option<i32>; 2],
    /// Whether the driver offers the path, and refuses to enable it.
    is_refused: bool,
}

impl Facts<'_> {
    fn machine(&self) -> &Machine {
        &self.examined.machine
    }

    /// The numbers of those GPUs of which that is true.
    fn gpus(&self, wanted: impl Fn(usize, &Known) -> bool) -> Option<String> {
        let is_meant = |ordinal: &&usize| self.known.get(**ordinal).is_some_and(|known| wanted(**ordinal, known));
        let found: Vec<String> = self.gpus.iter().filter(is_meant).map(usize::to_string).collect();
        (!found.is_empty()).then(|| found.join(" "))
    }

    fn says(&self, status: i32) -> bool {
        self.statuses.contains(&Some(status))
    }

    /// Whether the kernel's log has such a line about peer access.
    fn logs(&self, words: &str) -> bool {
        self.machine().faults.iter().any(|fault| fault.by == By::Peers && fault.line.contains(words))
    }

    /// Whether chips differ, as far as numbers on PCI tell: those of one chip have the first half in common.
    fn have_two_chips(&self) -> bool {
        let device = |ordinal: usize| Some(i32::from(self.examined.places.get(ordinal)?.device? >> 8));
        let capability = |ordinal: usize| self.known.get(ordinal)?.capability.map(|(major, minor)| major * 100 + minor);
        let differ = |[one, other]: [Option<i32>; 2]| one.zip(other).is_some_and(|(one, other)| one != other);
        differ(self.pair.map(device)) || differ(self.pair.map(capability))
    }

    /// The words for what is seen of a gate, and of its remedy, if it is closed.
    fn seen(&self, gate: &str) -> Option<[String; 2]> {
        let is = |is_closed: bool| is_closed.then(String::new);
        let offered = !self.is_refused;
        let what = match gate {
            "wsl" => is(self.machine().hypervisor.as_deref() == Some("WSL")),
            "mig" => self.gpus(|ordinal, known| known.is_mig == Some(true) || self.is_instance(ordinal)),
            "vgpu" => self.gpus(|_, known| known.virtualization == Some(2)),
            "confidential" => self.gpus(|_, known| known.is_confidential == Some(true)),
            "fabric" => fabric::cause(self.known, &self.gpus),
            "registry" => self.forbidden(),
            "topology" => is(self.says(TOPOLOGY)),
            "generations" => is(self.have_two_chips() && offered),
            "clique" => {
                let (name, remedy) = self.machine().host_remedy().filter(|_| offered)?;
                return Some([name.to_owned(), remedy.to_owned()]);
            }
            "board" if self.gpus(|_, known| is_geforce(known)).is_some() && offered => {
                Some("GeForce boards".to_owned())
            }
            "board" => self.says(GPU_UNFIT).then(|| "boards like these".to_owned()),
            "chipset" => is(self.says(CHIPSET)),
            "iommu-acs" => self.asked().filter(|_| offered),
            "alignment" => is(self.logs("is not aligned at")),
            "iommu" => is(self.logs("IOMMU mapping failed")),
            "bar1" => self.narrow(),
            "processors" => is(self.examined.joint(self.pair) == Joint::Processors),
            _ => None,
        };
        Some([what?, String::new()])
    }

    fn is_instance(&self, ordinal: usize) -> bool {
        self.examined.inventory.devices.get(ordinal).is_some_and(|device| device.uuid.starts_with("MIG-"))
    }

    /// The driver's registry has two bits each for reads and writes: 0 forbids, 1 allows, 2 leaves it to the driver.
    fn forbidden(&self) -> Option<String> {
        let forbids = |word: &&String| {
            let value = word.strip_prefix("ForceP2P=").unwrap_or("1");
            let value =
                value.strip_prefix("0x").map_or_else(|| value.parse().ok(), |it| u32::from_str_radix(it, 16).ok());
            word.starts_with("ForceP2P=") && value.is_some_and(|value| value & 3 == 0 || value >> 4 & 3 == 0)
        };
        let word = self.machine().registry.iter().find(forbids);
        (self.says(REGISTRY) || word.is_some()).then(|| word.map_or(String::new(), |word| format!(" ({word})")))
    }

    /// The obstacle that CUDA may have asked about.
    fn asked(&self) -> Option<String> {
        let is_translated = |ordinal: usize, _: &Known| {
            let gpu = self.machine().gpus.get(ordinal);
            gpu.is_some_and(|gpu| matches!(gpu.translation, Translation::Translated(_)))
        };
        self.examined.inventory.driver.filter(|version| *version >= ASKS)?;
        match (self.gpus(is_translated), self.machine().redirecting(self.pair).first()) {
            (Some(gpus), _) => Some(format!("the IOMMU translates for GPU {gpus}")),
            (None, Some(bridge)) => Some(format!("ACS of {bridge} redirects")),
            (None, None) => (self.statuses == [Some(OK); 2]).then(|| "NVML allows it".to_owned()),
        }
    }

    /// The GPUs whose BAR1 shows only a part of their memory.
    fn narrow(&self) -> Option<String> {
        let is_narrow = |known: &Known| {
            let bar1 = known.bar1.unwrap_or(u64::MAX);
            bar1 <= 256 << 20 || known.memory.is_some_and(|memory| bar1 < memory)
        };
        let gpus = self.gpus(|_, known| is_narrow(known))?;
        let known = self.gpus.iter().filter_map(|&ordinal| self.known.get(ordinal)).find(|known| is_narrow(known))?;
        let of = known.memory.map_or(String::new(), |memory| format!(" of {}", memory >> 20));
        Some(format!("{gpus} shows {}{of} MiB of its memory", known.bar1? >> 20))
    }

    /// The words about a gate, and about the next one, which stops whoever opens this.
    fn text(&self, gate: Option<&Gate>) -> String {
        let [mut what, mut todo] = [
            "the driver offers none, and nothing here tells why".to_owned(),
            "Report it with `p2pshim doctor --issue`; see `nvidia-smi topo -p2p r` and the kernel's log".to_owned(),
        ];
        if let Some((gate, [seen, remedy])) = gate.and_then(|gate| Some((gate, self.seen(gate.word)?))) {
            (what, todo) = (gate.what.replacen("{}", &seen, 1), gate.todo.replacen("{}", &remedy, 1));
        }
        let todo = if todo.is_empty() { todo } else { format!(" {todo}.") };
        let next = self.narrow().filter(|_| gate.is_some_and(|gate| gate.word == "board"));
        let next = next.map_or(String::new(), |narrow| format!(" The next gate is closed too: BAR1 of GPU {narrow}."));
        format!("{what}{}.{todo}{next}", self.nvml())
    }

    /// NVML's words, if it has any; where it disagrees with CUDA, both.
    fn nvml(&self) -> String {
        match self.statuses {
            [Some(OK), Some(OK)] if !self.is_refused => " (NVML: OK; CUDA: no)".to_owned(),
            [Some(OK), Some(OK)] | [None, _] | [_, None] => String::new(),
            [Some(reads), Some(writes)] if reads == writes => format!(" (NVML: {})", status_word(reads)),
            [Some(reads), Some(writes)] => {
                format!(" (NVML: reads {}, writes {})", status_word(reads), status_word(writes))
            }
        }
    }
}

fn is_geforce(known: &Known) -> bool {
    known.name.contains("GeForce") && known.capability.is_none_or(|capability| capability >= GEFORCE)
}

/// A closed gate, or none if nothing tells which it is; the words about it; and the pairs that it keeps apart.
pub(super) struct Closed<'a> {
    pub(super) gate: Option<&'static Gate>,
    pub(super) text: String,
    pub(super) rows: Vec<&'a Row>,
}

impl Closed<'_> {
    pub(super) fn advice(&self, devices: usize) -> String {
        format!("No peer access on {}: {}", short(&self.rows, devices), self.text)
    }
}

/// The first closed gate of each pair without peer access.
pub(super) fn closed<'a>(examined: &'a Examined, known: &[Known]) -> Vec<Closed<'a>> {
    let mut all: Vec<(Option<&'static Gate>, Facts<'_>, Vec<&'a Row>)> = Vec::new();
    for row in &examined.rows {
        let is_refused = matches!(&row.verdict, Verdict::Unknown(why) if why.contains("cuCtxEnablePeerAccess"));
        if row.verdict != Verdict::NoPath && !is_refused {
            continue;
        }
        let ([reads, writes, ..], pair) = (examined.statuses(row.pair), row.pair);
        let facts = Facts {
            examined,
            known,
            pair,
            gpus: vec![pair[0].min(pair[1]), pair[0].max(pair[1])],
            statuses: [reads, writes],
            is_refused,
        };
        let gate = GATES.iter().find(|gate| facts.seen(gate.word).is_some());
        let word = |gate: Option<&Gate>| gate.map(|gate| gate.word);
        let is_same = |(of, other, _): &&mut (Option<&Gate>, Facts<'_>, Vec<_>)| {
            // The fabric may keep each pair apart for a reason of its own.
            let reason =
                |facts: &Facts<'_>| fabric::trouble(known, &facts.gpus).or_else(|| fabric::cause(known, &facts.gpus));
            let are_alike = word(gate) != Some("fabric") || reason(other) == reason(&facts);
            word(*of) == word(gate) && other.nvml() == facts.nvml() && are_alike
        };
        match all.iter_mut().find(is_same) {
            Some((_, facts, rows)) => {
                rows.push(row);
                facts.gpus.extend(pair);
                facts.gpus.sort_unstable();
                facts.gpus.dedup();
            }
            None => all.push((gate, facts, vec![row])),
        }
    }
    all.into_iter().map(|(gate, facts, rows)| Closed { gate, text: facts.text(gate), rows }).collect()
}

/// Why there is no pair though the machine has GPUs for one.
pub(super) fn hidden(examined: &Examined) -> Option<String> {
    let (count, all) = (examined.inventory.devices.len(), examined.all_gpus);
    match (&examined.visible, &examined.container) {
        (Some(visible), _) if count < 2 && all > count => Some(format!(
            "CUDA_VISIBLE_DEVICES={} hides {} of {all} GPUs, and CUDA has no peer access to hidden ones. Unset it, and choose by \
             cudaSetDevice (Slurm: --gpu-bind=none).",
            Escaped(visible),
            all - count
        )),
        (_, Some(name)) if count == 1 => Some(format!(
            "This container ({name}) has one GPU; there is no peer access to those of others. Put all GPUs of the work into one container."
        )),
        _ => None,
    }
}

/// The likely cause for a pair that loses data though nothing of the machine stands in its way, where the driver was changed: NVIDIA's own
/// offers GeForce boards no path by PCI.
pub(super) fn of_changed_driver(examined: &Examined, known: &[Known], pair: [usize; 2]) -> Option<String> {
    let machine = &examined.machine;
    let is_changed = pair.iter().all(|&ordinal| known.get(ordinal).is_some_and(is_geforce));
    let is_shown = pair.iter().any(|&ordinal| machine.gpus.get(ordinal).is_some_and(|gpu| gpu.has_display));
    let is_plain = machine.risk(pair).is_none() && machine.faults.is_empty() && !is_shown;
    let is_set = machine.registry.iter().any(|word| word.starts_with("RMForceStaticBar1=1"));
    let remedy = if is_set {
        "Take another version of it, or NVIDIA's own: RMForceStaticBar1=1 is set"
    } else {
        "Set NVreg_RegistryDwords='RMForceStaticBar1=1;PeerMappingOverride=1' (/etc/modprobe.d), reboot, and test again"
    };
    let is_it = is_changed && is_plain && examined.joint(pair) != Joint::NvLink;
    is_it.then(|| format!("the driver was changed for GeForce boards. {remedy}"))
}
