//! The memory, streams and kernels on each GPU: made once, and used by one pair at a time.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use super::cuda::{Address, Context, Device, Driver, Function, Handle, Module, Result, Stream};
use super::journal::Journal;
use super::kernel::{Kernel, Kind};
use super::level::Level;
use super::pattern::Patterns;
use crate::lock::lock;

/// How much of a device's memory another process can open.
pub(super) const LARGEST: usize = 4 << 20;

/// A device, and what the tests of its pairs use there.
#[derive(Clone, Copy)]
pub(super) struct Side {
    pub(super) device: Device,
    pub(super) context: Context,
    pub(super) memory: Address,
    pub(super) stream: Stream,
    /// For copies beside kernels.
    pub(super) beside: Stream,
}

impl Side {
    pub(super) fn place(&self) -> (Address, Context) {
        (self.memory, self.context)
    }
}

/// Memory of a device that another process can open; or why none can.
#[derive(Clone)]
pub(super) struct Lent {
    pub(super) ipc: std::result::Result<(Address, Handle), String>,
    pub(super) vmm: std::result::Result<(Address, Arc<OwnedFd>), String>,
}

/// A device that is ready; or why it is not.
type Ready = std::result::Result<(Side, Lent), String>;

/// The modules of each context, each loaded once.
#[derive(Default)]
pub(super) struct Modules(Mutex<HashMap<(Context, Kind), Result<Module>>>);

impl Modules {
    /// A kernel in the context of a device.
    pub(super) fn kernel(
        &self,
        driver: &Driver,
        (device, context): (Device, Context),
        (kind, name): Kernel,
    ) -> Result<Function> {
        let known = lock(&self.0).get(&(context, kind)).cloned();
        let module = known.unwrap_or_else(|| {
            let text = kind.text(driver.capability(device)?).unwrap_or_default();
            let loaded = driver.module(context, &text);
            lock(&self.0).insert((context, kind), loaded.clone());
            loaded
        })?;
        driver.function(context, module, name)
    }
}

/// The devices, by ordinal.
pub(super) struct Listed {
    pub(super) devices: Vec<Device>,
    /// Pairs of ordinals that NVLink joins, if NVML says so.
    pub(super) nvlinks: Option<Vec<[usize; 2]>>,
}

/// The parts that all threads of the process use.
pub(super) struct Rig {
    pub(super) driver: Driver,
    pub(super) level: Level,
    /// By ordinal.
    pub(super) devices: Vec<Device>,
    /// Pairs of ordinals that NVLink joins, if NVML says so.
    nvlinks: Option<Vec<[usize; 2]>>,
    pub(super) patterns: Patterns,
    /// How much one copy of the speed measurement moves. Simulated GPUs copy alike whatever the size.
    pub(super) speed_bytes: usize,
    pub(super) journal: Journal,
    /// A pair that makes no progress for so long hangs.
    pub(super) patience: Duration,
    ready: Mutex<HashMap<usize, Ready>>,
    modules: Modules,
}

impl Rig {
    pub(super) fn new(driver: Driver, listed: Listed, level: Level, patience: Duration) -> Self {
        let Listed { devices, nvlinks } = listed;
        let patterns = Patterns::new(level.largest());
        let speed_bytes = if driver.is_simulated(&devices) { LARGEST } else { 64 << 20 };
        let (ready, modules, journal) = (Mutex::default(), Modules::default(), Journal::default());
        Self { driver, level, devices, nvlinks, patterns, speed_bytes, journal, patience, ready, modules }
    }

    /// Makes devices ready, all at the same time. One that is not after so long never will be.
    pub(super) fn prepare(self: &Arc<Self>, wanted: &[usize], time: Duration) {
        let missing: Vec<usize> =
            wanted.iter().copied().filter(|ordinal| !lock(&self.ready).contains_key(ordinal)).collect();
        let (sender, ended) = mpsc::channel();
        for &ordinal in &missing {
            let never = Err(format!("the context of GPU {ordinal} was not there after {} s", time.as_secs()));
            lock(&self.ready).insert(ordinal, never);
            let (rig, sender) = (Arc::clone(self), sender.clone());
            thread::spawn(move || {
                let ready = rig.make(ordinal).map_err(|error| error.to_string());
                lock(&rig.ready).insert(ordinal, ready);
                let _ = sender.send(());
            });
        }
        for _ in missing {
            if ended.recv_timeout(time).is_err() {
                break;
            }
        }
    }

    fn make(&self, ordinal: usize) -> Result<(Side, Lent)> {
        let (driver, device) = (&self.driver, self.devices.get(ordinal).copied().unwrap_or_default());
        let context = driver.context(device)?;
        let memory = driver.allocate(context, self.memory())?;
        let side = Side { device, context, memory, stream: driver.stream(context)?, beside: driver.stream(context)? };
        // Whatever a call returns that only shares memory, it says nothing of the path.
        let share = || {
            let address = driver.allocate(context, LARGEST)?;
            Ok((address, driver.export(context, address)?))
        };
        let ipc = share().map_err(|error: super::cuda::CudaError| error.to_string());
        let vmm = match self.level {
            Level::Quick => Err(String::new()),
            _ => driver.map_shareable(device, LARGEST).map_err(|error| error.to_string()),
        };
        Ok((side, Lent { ipc, vmm: vmm.map(|(address, descriptor)| (address, Arc::new(descriptor))) }))
    }

    /// How much memory the tests have of each device.
    pub(super) fn memory(&self) -> usize {
        self.level.memory(self.speed_bytes)
    }

    fn ready(&self, ordinal: usize) -> Ready {
        lock(&self.ready).get(&ordinal).cloned().unwrap_or_else(|| Err(format!("there is no GPU {ordinal}")))
    }

    /// A device.
    ///
    /// # Errors
    /// Why it is not ready.
    pub(super) fn side(&self, ordinal: usize) -> std::result::Result<Side, String> {
        Ok(self.ready(ordinal)?.0)
    }

    /// The memory of a device that another process can open.
    ///
    /// # Errors
    /// Why it is not ready.
    pub(super) fn lent(&self, ordinal: usize) -> std::result::Result<Lent, String> {
        Ok(self.ready(ordinal)?.1)
    }

    /// Whether NVLink joins two GPUs; none if NVML does not say.
    pub(super) fn is_joined(&self, pair: [usize; 2]) -> Option<bool> {
        self.nvlinks.as_ref().map(|nvlinks| nvlinks.contains(&pair))
    }

    /// A kernel in the context of a side.
    pub(super) fn kernel(&self, side: &Side, kernel: Kernel) -> Result<Function> {
        self.kernel_on((side.device, side.context), kernel)
    }

    /// A kernel in the context of a device.
    pub(super) fn kernel_on(&self, of: (Device, Context), kernel: Kernel) -> Result<Function> {
        self.modules.kernel(&self.driver, of, kernel)
    }
}
