//! Verification of paths, for CUDA and for HIP. The result for two devices holds for the whole process.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::time::Duration;

use super::cells::Cells;
use super::registry::{AllocationOwner, Registry, ordered};
use super::verify::Failure;
use crate::api::Layer;
use crate::config::{self, Config, Verify};
use crate::objects::memory::{Kind, Place};
use crate::os;
use crate::policy::driver::VerifyBackend;
use crate::policy::verdicts::Verdict;
use crate::record::log::{self, Verified};

/// How long a thread waits for others that verify a pair of one of its devices: each takes some milliseconds.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be enabled by the shim.
    Enable,
    /// To find out whether data arrives: the program has access already.
    Check,
    /// To find out whether the program gets access: it asks for it.
    Admit,
    /// To find out whether data still arrives: a copy of the program did not.
    Again,
}

pub(crate) struct Plan {
    pub(crate) src: Place,
    pub(crate) dst: Place,
    /// `Plain`, or `Pool` if either side is of a pool.
    pub(crate) kind: Kind,
    pub(crate) purpose: Purpose,
    /// A context for each side: the memory's own, if it has one. Its handle, and what tells it from later ones. With HIP the device and
    /// the copy of the runtime.
    pub(crate) contexts: [(usize, u64); 2],
    pub(crate) pools: [Option<usize>; 2],
}

impl Plan {
    pub(super) fn devices(&self) -> [i32; 2] {
        self.pair().map(i32::from)
    }

    pub(crate) fn pair(&self) -> [u8; 2] {
        [self.src.device, self.dst.device]
    }

    /// The directions that there are: the device that accesses, and the one whose memory it is.
    pub(super) fn directions(&self, [forth, back]: [bool; 2]) -> impl Iterator<Item = [i32; 2]> {
        let [src, dst] = self.devices();
        [(forth, [src, dst]), (back, [dst, src])].into_iter().filter(|&(can, _)| can).map(|(_, pair)| pair)
    }

    pub(super) fn say(&self, what: fmt::Arguments<'_>) {
        log::pair_info(self.src.device, self.dst.device, what);
    }

    pub(super) fn say_verified(&self, verified: Verified, what: fmt::Arguments<'_>) {
        log::pair_verified(self.src.device, self.dst.device, verified, what);
    }
}

/// Verifies the paths between a vendor's devices, and holds all that is known of them.
pub(crate) struct PeerVerifier {
    /// Whether it is HIP's. All is zero at the start, and takes no room in the library's file.
    is_hip: AtomicBool,
    /// The standard library's: see [`os::lock`]. Made at its first change.
    registry: Mutex<Option<Box<Registry>>>,
    /// Whether any pair is blocked: denied, or broken.
    pub(super) blocks: AtomicBool,
    /// Whether what the program enables is verified first.
    admits: AtomicBool,
}

/// The registry, under its lock, which is held.
pub(crate) struct RegistryGuard<'a>(MutexGuard<'a, Option<Box<Registry>>>);

impl Deref for RegistryGuard<'_> {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        static NOTHING: LazyLock<Registry> = LazyLock::new(Registry::default);
        self.0.as_deref().unwrap_or(&NOTHING)
    }
}

impl DerefMut for RegistryGuard<'_> {
    #[inline(never)]
    fn deref_mut(&mut self) -> &mut Registry {
        self.0.get_or_insert_default()
    }
}

/// A thread acts on two devices, until this goes away, after a panic too. Then what was decided about them is decided anew.
pub(crate) struct PairLock<'a>(&'a PeerVerifier, [u8; 2], Option<&'a Cells>);

impl Drop for PairLock<'_> {
    fn drop(&mut self) {
        let mut registry = self.0.lock();
        if let Some(cells) = self.2 {
            let is_on = |owner: AllocationOwner| self.1.map(i32::from).contains(&owner.device());
            registry.numbered().filter(|&(_, owner)| is_on(owner)).for_each(|(number, _)| cells.change(number));
        }
        registry.acting.retain(|devices| *devices != self.1);
    }
}

impl PeerVerifier {
    pub(crate) const fn new() -> Self {
        let [is_hip, blocks, admits] = [const { AtomicBool::new(false) }; 3];
        Self { is_hip, registry: Mutex::new(None), blocks, admits }
    }

    pub(crate) fn configure(&self, config: &Config, layer: Layer) {
        self.is_hip.store(layer == Layer::Hip, Relaxed);
        let hides_all = config.access == config::Access::Off;
        self.admits.store(!hides_all && config.verify != Verify::Off, Relaxed);
        let is_any_blocked = {
            let mut registry = self.lock();
            registry.configure(config, layer);
            registry.is_any_blocked()
        };
        self.blocks.store(is_any_blocked, Relaxed);
    }

    pub(crate) fn lock(&self) -> RegistryGuard<'_> {
        RegistryGuard(os::lock(&self.registry))
    }

    /// Whether any pair is blocked: denied, or broken.
    #[inline(always)]
    pub(crate) fn blocks(&self) -> bool {
        self.blocks.load(Relaxed)
    }

    /// Whether what the program enables is verified first.
    #[inline(always)]
    pub(crate) fn admits(&self) -> bool {
        self.admits.load(Relaxed)
    }

    pub(super) fn is_hip(&self) -> bool {
        self.is_hip.load(Relaxed)
    }

    /// Lets nobody else act on these devices, and has what `cells` hold about them decided anew at the end. None if another thread acts on one, for
    /// longer than is waited.
    pub(crate) fn begin<'a>(
        &'a self,
        devices: [u8; 2],
        patience: Duration,
        cells: Option<&'a Cells>,
    ) -> Option<PairLock<'a>> {
        os::until(patience, || self.lock().begin_acting(devices)).then(|| PairLock(self, devices, cells))
    }

    /// The verdict that is kept on a device's access to the memory of another.
    pub(super) fn kept(&self, driver: &impl VerifyBackend, by: i32, of: i32) -> Option<Verdict> {
        if let Some(kept) = self.lock().kept.get(&[by, of]) {
            return kept.clone();
        }
        let verdict = driver.verdict(by, of);
        self.lock().kept.insert([by, of], verdict.clone());
        verdict
    }

    /// Reads the verdict on a pair before it is needed. If nothing goes by it, says that data may be wrong.
    pub(super) fn read_kept(&self, driver: &impl VerifyBackend, [by, of]: [i32; 2]) {
        if self.lock().is_either_denied(by, of) {
            return;
        }
        let within = self.kept(driver, by, of).and_then(|verdict| verdict.within_process());
        let is_left = self.lock().verify == Verify::Off;
        if let (true, Some(Err(what)), Ok(by), Ok(of)) = (is_left, within, u8::try_from(by), u8::try_from(of)) {
            let what = format_args!(
                "data does not arrive from device {by} to device {of}, as an earlier check found: {what}. P2PSHIM_VERIFY=off ignores that: \
                 data that is copied there directly may be wrong"
            );
            log::pair_verified(by, of, Verified::Disregarded, what);
        }
    }

    /// Checks the verdicts that are kept. Whether they say that data arrives in each direction that there is; where one is missing, what
    /// is verified here has to do.
    ///
    /// # Errors
    /// One says that data does not arrive.
    pub(crate) fn check_verdicts(
        &self,
        driver: &impl VerifyBackend,
        plan: &Plan,
        can: [bool; 2],
    ) -> Result<bool, Failure> {
        let verdicts = plan.directions(can).map(|[by, of]| self.kept(driver, by, of).unwrap_or_default());
        let verdicts: Vec<Verdict> = verdicts.collect();
        let is_full = self.lock().verify == Verify::Full && !self.is_hip();
        if is_full && !verdicts.iter().all(Verdict::has_kernels) {
            self.misses_verdict();
        }
        let mut has_passed = true;
        for within in verdicts.iter().map(Verdict::within_process) {
            has_passed &= within.is_some();
            within.unwrap_or(Ok(())).map_err(|what| {
                let again = if self.is_hip() { " --forget` has it verified" } else { "` tests" };
                Failure::Kept(format!("an earlier check failed: {what} (`p2pshim doctor{again} again)"))
            })?;
        }
        if has_passed {
            self.lock().passed_earlier.insert(ordered(plan.src.device, plan.dst.device));
        }
        Ok(has_passed)
    }
}
