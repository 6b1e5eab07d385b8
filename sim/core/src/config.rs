//! The environment's words about the machine to simulate.

use std::path::PathBuf;

use crate::declared::Declared;
use crate::fault::{Faults, kinds, parse_pair};

/// The most devices that can be simulated.
pub const MAX_DEVICES: usize = 64;
/// The variable that opens what the fault `gate` closes.
const OVERRIDE: &str = "CUDA_DISABLE_IOMMU_ACS_P2P_CAPABILITY_CHECK";
/// Microseconds of the longest delay, if none is said.
const MOST_DELAY: u64 = 2000;

/// A machine to simulate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The name of the devices of CUDA (`P2PSIM_NAME`, default `Simulated GPU`).
    pub name: String,
    /// Number of devices (`P2PSIM_DEVICES`, default 2, 0 to [`MAX_DEVICES`]).
    pub devices: usize,
    /// The numbers of all devices on the machine: first of those that the program sees, then of hidden ones. Empty if none is hidden.
    pub order: Vec<usize>,
    /// The version of CUDA that the driver is of (`P2PSIM_DRIVER`, default 13000): from 13050 on, captures take batches of copies.
    pub driver: usize,
    /// Ordered pairs of devices, the first unable to reach the second (`P2PSIM_NO_P2P`, such as `0-1,2>3`).
    pub no_path: Vec<(usize, usize)>,
    /// Peers that one context may have enabled at a time (`P2PSIM_MAX_PEERS`, default 8).
    pub max_peers: usize,
    /// The folder in which processes count the peers of a device together (`P2PSIM_PEERS`; without it each process counts its own).
    pub peers: Option<PathBuf>,
    /// MB/s of copies that the driver stages (`P2PSIM_STAGING_SPEED`, default 40000).
    pub staging_speed: usize,
    /// The seed of a delay of each piece of work, and the most microseconds of one (`P2PSIM_DELAYS`, such as `7` or `7:2000`).
    pub delays: Option<(u64, u64)>,
    /// Places in each queue of a stream, which callers wait for (`P2PSIM_QUEUE`, default no limit).
    pub queue: usize,
    /// Whether the devices are instances of partitioned GPUs (`P2PSIM_MIG`, 1).
    pub is_mig: bool,
    /// Devices that only one process may use (`P2PSIM_EXCLUSIVE`, such as `0,2`): they say so, and nobody is kept from them.
    pub exclusive: Vec<usize>,
    /// Whether memory says that it can be shared by `cuIpcGetMemHandle` (`P2PSIM_LEGACY_IPC`, 0 if not).
    pub has_legacy_ipc: bool,
    /// Whether addresses of one device may be another's, or the host's, once they are freed (`P2PSIM_ONE_SPACE`).
    pub shares_addresses: bool,
    /// Kernels of the program (`P2PSIM_KERNELS`, such as `add:r1=4096:w0=4096`).
    pub kernels: &'static [Declared],
    /// Whether rights without a path on a pool that has no memory are refused late, when it gets some (`P2PSIM_LATE_POOLS`, 1).
    pub has_late_pools: bool,
    /// Whether the host cannot touch memory of devices: only that of CUDA's (`P2PSIM_HOST_READS`, 1 if it can).
    pub is_guarded: bool,
    /// Faults of the machine (`P2PSIM_FAULT`, such as `drop:0>1,code:cuMemFree_v2:700@2`).
    pub faults: Faults,
    /// Whether the devices hang on PCI only, on a machine that says so (`P2PSIM_ROOT`, a folder with its `proc` and `sys`).
    pub is_pci: bool,
    /// Where the simulated NVML reads what links have carried (`P2PSIM_NVLINK`, a folder; without it there is no NVML).
    pub nvlink: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            name: "Simulated GPU".to_owned(),
            devices: 2,
            order: Vec::new(),
            driver: 13_000,
            no_path: Vec::new(),
            max_peers: 8,
            peers: None,
            staging_speed: 40_000,
            delays: None,
            queue: usize::MAX,
            is_mig: false,
            exclusive: Vec::new(),
            has_legacy_ipc: true,
            shares_addresses: false,
            has_late_pools: false,
            is_guarded: true,
            kernels: &[],
            faults: Faults::default(),
            is_pci: false,
            nvlink: None,
        }
    }
}

impl Config {
    /// Reads the process environment; complains on stderr about values that it cannot use.
    pub fn from_env() -> Config {
        let (config, complaints) = Config::parse(|name| std::env::var(name).ok());
        for complaint in complaints {
            eprintln!("p2psim: {complaint}");
        }
        config
    }

    /// Reads variables through `lookup`; a value that makes no sense leaves the default and a complaint.
    pub fn parse(lookup: impl Fn(&str) -> Option<String>) -> (Config, Vec<String>) {
        let mut config = Config::default();
        let mut complaints = Vec::new();
        let mut number = |name: &str, range: std::ops::RangeInclusive<usize>, value: &mut usize| {
            let Some(text) = lookup(name) else { return };
            match text.trim().parse() {
                Ok(parsed) if range.contains(&parsed) => *value = parsed,
                _ => complaints.push(format!(
                    "{name}={text}: not a number from {} to {}; using {value}",
                    range.start(),
                    range.end(),
                )),
            }
        };
        number("P2PSIM_DEVICES", 0..=MAX_DEVICES, &mut config.devices);
        number("P2PSIM_DRIVER", 8_000..=13_990, &mut config.driver);
        number("P2PSIM_MAX_PEERS", 0..=MAX_DEVICES, &mut config.max_peers);
        number("P2PSIM_STAGING_SPEED", 1..=10_000_000, &mut config.staging_speed);
        number("P2PSIM_QUEUE", 1..=usize::MAX, &mut config.queue);
        if let Some(text) = lookup("P2PSIM_DELAYS") {
            let (seed, most) = text.split_once(':').map_or((&*text, None), |(seed, most)| (seed, Some(most)));
            config.delays = seed.parse().ok().zip(most.map_or(Some(MOST_DELAY), |most| most.parse().ok()));
            if config.delays.is_none() {
                complaints.push(format!("P2PSIM_DELAYS={text}: not a number, or two like 7:2000; no delays"));
            }
        }
        if let Some(text) = lookup("P2PSIM_NO_P2P") {
            match parse_pairs(&text) {
                Some(pairs) => config.no_path = pairs,
                None => {
                    complaints.push(format!("P2PSIM_NO_P2P={text}: not a list like 0-1,2>3; every pair has a path"))
                }
            }
        }
        if let Some(text) = lookup("P2PSIM_FAULT") {
            let (faults, bad) = Faults::parse(&text);
            config.faults = faults;
            complaints
                .extend(bad.iter().map(|item| format!("P2PSIM_FAULT={text}: {item} is none of {}; ignored", kinds())));
        }
        if let Some(text) = lookup("P2PSIM_KERNELS") {
            let (kernels, bad) = Declared::parse(&text);
            // Read once, for the life of the process.
            config.kernels = kernels.leak();
            complaints.extend(bad.iter().map(|item| {
                format!(
                    "P2PSIM_KERNELS: {item} is no name followed by r or w, a parameter and bytes (saxpy:r1=4*i2:w0=4*i2), or by a time (200ms); \
                     ignored"
                )
            }));
        }
        if let Some(name) = lookup("P2PSIM_NAME").filter(|name| !name.is_empty()) {
            config.name = name;
        }
        if lookup(OVERRIDE).is_none_or(|value| value != "1") {
            config.no_path.extend(config.faults.gated());
        }
        config.is_mig = lookup("P2PSIM_MIG").is_some_and(|value| value == "1");
        let exclusive = lookup("P2PSIM_EXCLUSIVE").unwrap_or_default();
        config.exclusive = exclusive.split(',').filter_map(|ordinal| ordinal.trim().parse().ok()).collect();
        config.has_legacy_ipc = lookup("P2PSIM_LEGACY_IPC").is_none_or(|value| value != "0");
        config.shares_addresses = lookup("P2PSIM_ONE_SPACE").is_some_and(|value| value == "1");
        config.has_late_pools = lookup("P2PSIM_LATE_POOLS").is_some_and(|value| value == "1");
        config.is_guarded = lookup("P2PSIM_HOST_READS").is_none_or(|value| value != "1");
        config.is_pci = lookup("P2PSIM_ROOT").is_some_and(|root| !root.is_empty());
        let folder = |name| lookup(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
        (config.nvlink, config.peers) = (folder("P2PSIM_NVLINK"), folder("P2PSIM_PEERS"));
        (config, complaints)
    }

    /// Hides all devices but these, and numbers them in this order. Settings of a device stay with it.
    pub fn show(&mut self, visible: &[usize]) {
        let hidden = (0..self.devices).filter(|number| !visible.contains(number));
        self.order = visible.iter().copied().chain(hidden).collect();
        self.devices = visible.len();
        let pairs = self.no_path.iter().map(|&(from, to)| (self.device(from), self.device(to)));
        self.no_path = pairs.collect();
        let mut faults = self.faults.clone();
        faults.renumber(|number| self.device(number));
        self.faults = faults;
    }

    /// How many devices there are, hidden ones too.
    pub fn all_devices(&self) -> usize {
        self.devices.max(self.order.len())
    }

    /// The number of a device on the machine.
    pub fn number(&self, device: usize) -> usize {
        self.order.get(device).copied().unwrap_or(device)
    }

    /// The device that has a number on the machine.
    pub fn device(&self, number: usize) -> usize {
        self.order.iter().position(|known| *known == number).unwrap_or(number)
    }

    /// Whether nodes of graphs can be batches of copies.
    pub fn has_batch_nodes(&self) -> bool {
        self.driver >= 13_050
    }

    /// Whether the hardware lets device `from` reach the memory of device `to`.
    pub fn has_path(&self, from: usize, to: usize) -> bool {
        from != to && !self.is_mig && !self.no_path.contains(&(from, to))
    }
}

/// `0-1,2>3`: no path between 0 and 1 either way, none from 2 to 3.
fn parse_pairs(text: &str) -> Option<Vec<(usize, usize)>> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    items.map(parse_pair).collect::<Option<Vec<_>>>().map(|pairs| pairs.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(variables: &[(&str, &str)]) -> (Config, Vec<String>) {
        Config::parse(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string()))
    }

    #[test]
    fn parse_nothing_set_gives_defaults() {
        assert_eq!(parse(&[]), (Config::default(), vec![]));
    }

    #[test]
    fn show_renumbers_what_was_said_of_devices() {
        let mut config =
            parse(&[("P2PSIM_DEVICES", "3"), ("P2PSIM_NO_P2P", "0>2"), ("P2PSIM_FAULT", "drop:2>0,stall:1>0:2ms")]).0;
        config.show(&[2, 0]);
        assert_eq!((config.devices, config.all_devices()), (2, 3));
        assert_eq!([0, 1, 2].map(|device| config.number(device)), [2, 0, 1]);
        assert_eq!([0, 1, 2].map(|number| config.device(number)), [1, 2, 0]);
        assert!(!config.has_path(1, 0) && config.has_path(0, 1));
        assert!(config.faults.defect(0, 1, 1).is_some() && config.faults.defect(1, 0, 1).is_none());
        assert!(config.faults.defect(2, 1, 1).is_some() && config.faults.defect(1, 0, 1).is_none());
    }

    #[test]
    fn parse_pairs_one_way_and_both_ways() {
        let (config, complaints) = parse(&[("P2PSIM_NO_P2P", "0-1, 2>3")]);
        assert!(complaints.is_empty());
        assert!(!config.has_path(0, 1) && !config.has_path(1, 0));
        assert!(!config.has_path(2, 3) && config.has_path(3, 2));
        assert!(!config.has_path(5, 5));
    }

    #[test]
    fn parse_gate_is_open_with_the_variable_only() {
        for (value, has_path) in [("0", false), ("1", true)] {
            let (config, complaints) = parse(&[("P2PSIM_FAULT", "gate:0-1"), (OVERRIDE, value)]);
            assert!(complaints.is_empty() && config.has_path(0, 1) == has_path && config.has_path(1, 0) == has_path);
        }
    }

    #[test]
    fn parse_unknown_fault_names_all_kinds() {
        let complaint = &parse(&[("P2PSIM_FAULT", "bogus")]).1[0];
        for kind in ["drop", "all-to-all", "ll128", "ipc-kernels-hang", "crowd", "vmm", "pull", "stall", "code:"] {
            assert!(complaint.contains(&format!(" {kind}")), "{complaint}");
        }
    }

    #[test]
    fn parse_bad_value_complains_and_keeps_default() {
        for (name, value) in [
            ("P2PSIM_DEVICES", "many"),
            ("P2PSIM_DEVICES", "-1"),
            ("P2PSIM_NO_P2P", "0:1"),
            ("P2PSIM_MAX_PEERS", "65"),
            ("P2PSIM_STAGING_SPEED", "0"),
            ("P2PSIM_FAULT", "drop:0"),
            ("P2PSIM_KERNELS", "add:r0"),
            ("P2PSIM_DELAYS", "7:many"),
        ] {
            let (config, complaints) = parse(&[(name, value)]);
            assert_eq!(config, Config::default());
            assert!(complaints.len() == 1 && complaints[0].contains(name), "{complaints:?}");
        }
    }
}
