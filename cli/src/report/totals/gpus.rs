//! Which devices of files are the same GPU, and what it is called.

use std::collections::HashMap;

use p2pshim_trace::REMOTE;

use super::Totals;
use crate::report::model::{File, Gpu};
use crate::report::names::{Device, Names};

/// Whether a number in place of a device stands for memory of another process.
pub(super) fn is_remote(ordinal: u8) -> bool {
    ordinal >= REMOTE
}

/// The facts that make a GPU the same in two files.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Identity {
    /// Host, and UUID or PCI bus id.
    Gpu(Option<String>, String),
    /// Nothing is known of it but its ordinal in a file.
    Unknown(usize, u8),
    /// Memory of another process, by its number in a file, until it is known where it lies.
    Remote(usize, u8),
    /// Memory of other processes of which that is not known, by the host of the one that opened it.
    Another(Option<String>),
}

impl Totals {
    /// The number of a GPU. It may become another in the report.
    pub(super) fn gpu(&mut self, file: &mut File, names: &Names, ordinal: u8, device: Option<&Device>) -> usize {
        if let Some(&number) = file.devices.get(&ordinal) {
            return number;
        }
        let known = device.and_then(|device| device.uuid.clone().or_else(|| device.pci.clone()));
        let identity = match known {
            _ if is_remote(ordinal) => Identity::Remote(file.index, ordinal),
            Some(known) => Identity::Gpu(names.host.clone(), known),
            None => Identity::Unknown(file.index, ordinal),
        };
        let Device { name, uuid, pci } = device.cloned().unwrap_or_default();
        let number = self.numbered(identity, Gpu { host: names.host.clone(), name, uuid, pci, ..Gpu::default() });
        if let Some((_, gpu)) = self.gpus.get_mut(number).filter(|_| !is_remote(ordinal)) {
            gpu.ordinals.insert(file.index.to_string(), ordinal);
        }
        file.devices.insert(ordinal, number);
        number
    }

    /// The number of a GPU, which is a new one if there is none like it.
    pub(super) fn numbered(&mut self, identity: Identity, gpu: Gpu) -> usize {
        *self.gpu_numbers.entry(identity.clone()).or_insert_with(|| {
            self.gpus.push((identity, gpu));
            self.gpus.len() - 1
        })
    }

    /// Puts GPUs in order and labels them. Returns the new number of each; `meant` says which one is meant by each.
    pub(super) fn sort_gpus(&mut self, meant: &[usize]) -> Vec<usize> {
        let several = {
            let mut hosts: Vec<_> = self.files.iter().filter_map(|file| file.host.as_ref()).collect();
            hosts.sort_unstable();
            hosts.dedup();
            hosts.len() > 1
        };
        let names: Vec<String> = self.files.iter().map(|file| process(file, several)).collect();
        let name_of = |index: usize| {
            let (file, name) = self.files.iter().zip(&names).find(|(file, _)| file.index == index)?;
            let is_unique = names.iter().filter(|other| *other == name).count() == 1;
            Some(if is_unique { name.as_str() } else { file.path.rsplit('/').next().unwrap_or_default() })
        };
        let gpus = std::mem::take(&mut self.gpus).into_iter().enumerate();
        let mut numbers = vec![0; gpus.len()];
        let mut gpus: Vec<(usize, (Identity, Gpu))> =
            gpus.filter(|(_, (identity, _))| !matches!(identity, Identity::Remote(..))).collect();
        gpus.sort_by_cached_key(|(_, (identity, gpu))| match identity {
            Identity::Gpu(host, known) => {
                let pci = gpu.pci.clone().unwrap_or_default().to_ascii_lowercase();
                let first_seen =
                    gpu.ordinals.iter().filter_map(|(file, at)| Some((file.parse::<usize>().ok()?, *at))).min();
                // One that no process sees has only a UUID.
                (host.clone(), u8::from(gpu.ordinals.is_empty()), pci, first_seen, known.clone())
            }
            Identity::Unknown(file, ordinal) => {
                (gpu.host.clone(), 2, String::new(), Some((*file, *ordinal)), String::new())
            }
            Identity::Remote(..) | Identity::Another(_) => (gpu.host.clone(), 3, String::new(), None, String::new()),
        });
        let mut on_host: HashMap<Option<String>, u32> = HashMap::new();
        for (index, (before, (identity, mut gpu))) in gpus.into_iter().enumerate() {
            if let Some(number) = numbers.get_mut(before) {
                *number = index;
            }
            gpu.index = index;
            match &identity {
                Identity::Gpu(host, _) => {
                    let next = on_host.entry(host.clone()).or_default();
                    gpu.number = *next;
                    *next += 1;
                    gpu.label = match host.as_ref().filter(|_| several) {
                        Some(host) => format!("{host} GPU {}", gpu.number),
                        None => format!("GPU {}", gpu.number),
                    };
                }
                Identity::Unknown(file, ordinal) => {
                    gpu.number = u32::from(*ordinal);
                    gpu.label = match name_of(*file) {
                        Some(name) if names.len() > 1 => format!("device {ordinal} of {name}"),
                        _ => format!("device {ordinal}"),
                    };
                }
                Identity::Remote(..) | Identity::Another(_) => {
                    gpu.number = u32::MAX;
                    gpu.is_another_process = true;
                    gpu.label = match gpu.host.as_ref().filter(|_| several) {
                        Some(host) => format!("another process of {host}"),
                        None => "another process".to_owned(),
                    };
                }
            }
            self.gpus.push((identity, gpu));
        }
        (0..numbers.len()).map(|gpu| numbers.get(*meant.get(gpu)?).copied()).map(Option::unwrap_or_default).collect()
    }
}

/// A process, in short.
fn process(file: &File, several_hosts: bool) -> String {
    let host = file.host.as_ref().filter(|_| several_hosts).map(|host| format!("{host} ")).unwrap_or_default();
    match (&file.rank, file.process) {
        (Some(rank), _) => format!("{host}rank {rank}"),
        (None, Some(process)) => format!("{host}pid {process}"),
        (None, None) => file.path.rsplit('/').next().unwrap_or_default().to_owned(),
    }
}
