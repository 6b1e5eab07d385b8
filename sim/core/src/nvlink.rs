//! The files that the simulated NVML reads: a folder that all processes share (`P2PSIM_NVLINK`).
//!
//! `traffic` has two numbers of 8 bytes for each device: bytes sent and bytes received. `processes` has an empty file for
//! each process that uses the devices, named by its number.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of the two numbers of a device.
const DEVICE: u64 = 16;

/// The counters of all devices.
pub(crate) struct Counters {
    file: File,
    /// The number of each device on the machine.
    numbers: Vec<usize>,
}

impl Counters {
    /// Opens those of a folder, which is made if it is not there, and notes that this process uses the devices.
    pub(crate) fn open(folder: &Path, numbers: Vec<usize>) -> io::Result<Self> {
        let processes = folder.join("processes");
        fs::create_dir_all(&processes)?;
        File::create(processes.join(std::process::id().to_string()))?;
        let file = File::options().read(true).write(true).create(true).truncate(false).open(folder.join("traffic"))?;
        Ok(Self { file, numbers })
    }

    /// Counts the bytes that went from a device to another, if it can.
    pub(crate) fn add(&self, from: usize, to: usize, bytes: u64) {
        let place = |device: usize| self.numbers.get(device).map_or(0, |number| *number as u64 * DEVICE);
        if self.file.lock().is_ok() {
            let _ = self.add_at(place(from), bytes).and_then(|()| self.add_at(place(to) + 8, bytes));
            let _ = self.file.unlock();
        }
    }

    fn add_at(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let mut number = [0; 8];
        // Beyond the end of the file everything is 0.
        let _ = self.file.read_at(&mut number, offset)?;
        let sum = u64::from_le_bytes(number).wrapping_add(bytes);
        self.file.write_all_at(&sum.to_le_bytes(), offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn add_counts_what_is_sent_and_received() {
        let folder = std::env::temp_dir().join(format!("p2psim-nvlink-{}", std::process::id()));
        let counters = Counters::open(&folder, vec![0, 1]).unwrap();
        counters.add(1, 0, 5);
        Counters::open(&folder, vec![2, 1, 0]).unwrap().add(1, 0, 7);
        let bytes = fs::read(folder.join("traffic")).unwrap();
        let numbers: Vec<u64> = bytes.chunks_exact(8).map(|it| u64::from_le_bytes(it.try_into().unwrap())).collect();
        assert_eq!(numbers, [0, 5, 12, 0, 0, 7]);
        assert!(folder.join("processes").join(std::process::id().to_string()).exists());
        fs::remove_dir_all(folder).unwrap();
    }
}
