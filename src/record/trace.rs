//! The trace file: a record of each call, and notes of all that it takes to read them.
//!
//! Notes in the file name all that a record refers to by number (functions, paths, rules, codes, call sites). A call site's
//! address becomes module and offset by the executable mappings of `/proc/self/maps`, noted when an address turns up that none of
//! those known covers: asking the dynamic linker would take its lock. A driver call's record is known to that of the runtime call
//! around it, which takes over what only the driver's layer knows: devices and path.
//!
//! The descriptor is kept for growing only. If it is not our file any more, the path is opened again; if that is another file,
//! calls are counted from then on, and one message says why. Why a record begins with the call: docs/dev/decisions/records-begin-first.md.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use p2pshim_host::{job, machine};
use p2pshim_trace::{NoteKind, Options, SUFFIX, Segment, Writer};

use super::modules::{self, Module};
use super::numbers;
use crate::config::{self, Config};
use crate::model::{Origin, Rule, process};
use crate::os;
use crate::os::table::Table;

static TRACE: OnceLock<Trace> = OnceLock::new();

/// Not in [`Trace`], which is made on the stack of whichever thread makes the first call: some have little of it.
static SITES: Sites = Sites::new();

/// How many origins are told apart, with the place in the code that called.
const ORIGINS: usize = 4096;

/// For so many places it is looked anew which code is where.
const SITES_READ_ANEW: u64 = 256;

/// See the module.
pub(crate) struct Trace {
    writer: Writer,
    /// As it was given, and the file in it.
    folder: OsString,
    path: PathBuf,
    /// Where code is in memory, as far as it is noted.
    modules: Mutex<Vec<Module>>,
    /// The numbers of places in the code, each with what else is known of where calls came from.
    origins: Mutex<BTreeMap<(usize, Origin), u16>>,
    knows_gpus: AtomicBool,
}

/// Makes the file, if one is wanted, and adds to `warnings` why there is none. Returns whether calls are to be recorded.
pub(crate) fn open(config: &Config, warnings: &mut Vec<String>) -> bool {
    let Some(folder) = &config.trace else { return false };
    let host = machine::host_name();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let name = format!("{}-{}-{}{SUFFIX}", host.replace('/', "_"), os::process_id(), since.as_micros());
    // As much may be wanted by each of a node's ranks.
    let limit_in_memory = machine::memory_limit(Path::new("/")).map_or(u64::MAX, |limit| limit / 32);
    let options = Options { folder: PathBuf::from(folder), name, limit: config.trace_limit, limit_in_memory };
    let path = options.folder.join(&options.name);
    // The program may go elsewhere.
    let path = std::path::absolute(&path).unwrap_or(path);
    match os::without_signals_of_writing(|| Writer::create(&options)) {
        Ok(writer) => {
            let trace = Trace {
                writer,
                folder: folder.clone(),
                path,
                modules: Mutex::new(Vec::new()),
                origins: Mutex::new(BTreeMap::new()),
                knows_gpus: AtomicBool::new(false),
            };
            trace.describe_process(&host);
            numbers::name(|kind, number, strings| trace.note(kind, number, strings));
            os::on_exit(exits);
            TRACE.set(trace).is_ok()
        }
        Err(error) => {
            warnings.push(format!(
                "P2PSHIM_TRACE={}: {error}; calls are not recorded. {}",
                folder.display(),
                advice(&error)
            ));
            false
        }
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "Create the folder first",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => "Name a folder that you can write to",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "Make room, or name a folder on another disk",
        _ => "Name another folder",
    }
}

#[inline(always)]
pub(crate) fn file() -> Option<&'static Trace> {
    TRACE.get()
}

/// How many ticks so many nanoseconds are.
pub(crate) fn ticks(nanos: u64) -> u64 {
    TRACE.get().map_or(0, |trace| trace.writer.ticks(nanos))
}

/// Notes a GPU by its ordinal: name, UUID, PCI bus id, and what else is known as `key=value`.
pub(crate) fn gpu(ordinal: u8, strings: &[&str]) {
    note(NoteKind::Gpu, ordinal.into(), strings);
}

/// Notes what is known of the access of a device to the memory of another, as `key=value`.
pub(crate) fn peer(device: u8, peer: u8, strings: &[&str]) {
    note(NoteKind::Peer, u32::from(device) << 8 | u32::from(peer), strings);
}

/// Notes what has which version.
pub(crate) fn version(of: &str, version: &str) {
    note(NoteKind::Version, 0, &[of, version]);
}

/// Notes what was decided about a pair of devices, then what else is known as `key=value`.
pub(super) fn decision(one: u8, other: u8, strings: &[&str]) {
    note(NoteKind::Decision, u32::from(one) << 8 | u32::from(other), strings);
}

/// Notes what was found, in full; then what else is known as `key=value`.
pub(super) fn finding(rule: Rule, strings: &[&str]) {
    note(NoteKind::Finding, rule as u32, strings);
}

/// Notes what the program has said of itself, and by which thread.
pub(super) fn mark(text: &str) {
    note(NoteKind::Mark, os::thread_id().cast_unsigned(), &[text]);
}

/// Notes something else that was said.
pub(super) fn message(text: &str) {
    note(NoteKind::Message, 0, &[text]);
}

/// Counts a call that is not recorded for want of memory.
pub(crate) fn drop_call() {
    if let Some(trace) = TRACE.get() {
        trace.writer.drop_call();
    }
}

/// Counts a copy, or an enabling, of a forked child, for the reader of its parent's file.
pub(crate) fn miss_child() {
    if let Some(trace) = TRACE.get() {
        trace.writer.miss_child();
    }
}

/// Keeps with what status the process exits.
extern "C" fn exits(status: libc::c_int, _: *mut libc::c_void) {
    if let Some(trace) = TRACE.get().filter(|_| process::is_own()) {
        // As whoever waits for the process sees it.
        trace.writer.exits(status as u8);
    }
}

pub(super) fn is_open() -> bool {
    TRACE.get().is_some()
}

/// Notes something, by its number and strings.
pub(crate) fn note(kind: NoteKind, number: u32, strings: &[&str]) {
    if let Some(trace) = TRACE.get() {
        let strings: Vec<&[u8]> = strings.iter().map(|string| string.as_bytes()).collect();
        trace.note(kind, number, &strings);
    }
}

impl Trace {
    /// Whether it lies in that folder, by whichever name; if that cannot be told, by the same name.
    pub(crate) fn is_in(&self, folder: &OsStr) -> bool {
        match (fs::canonicalize(folder), self.path.parent().map(fs::canonicalize)) {
            (Ok(wanted), Some(Ok(there))) => wanted == there,
            _ => self.folder == folder,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.writer.dropped()
    }

    /// The time, in the file's ticks.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        self.writer.now()
    }

    /// Whether it is time to compare clocks.
    #[inline(always)]
    pub(crate) fn is_calibration_due(&self, now: u64) -> bool {
        self.writer.is_calibration_due(now)
    }

    /// Compares clocks, if it is time to. A signal handler that left by `longjmp` meanwhile would leave the lock locked.
    pub(crate) fn calibrate_if_due(&self, now: u64) {
        if self.is_calibration_due(now) {
            os::undisturbed(|| self.writer.calibrate_if_due(now));
        }
    }

    /// The number of a place in the code, if it has one already.
    #[inline(always)]
    pub(crate) fn known_site(&self, address: usize) -> Option<u16> {
        SITES.find(address)
    }

    /// Whether there is no more room for any call.
    pub(crate) fn is_full(&self) -> bool {
        self.writer.is_full()
    }

    /// Has a thread have room, if there is any.
    ///
    /// # Errors
    /// Why there is none, the first time.
    pub(crate) fn extend(&self, segment: &Segment) -> Result<bool, String> {
        os::without_signals_of_writing(|| self.writer.extend(segment))
    }

    /// Takes back what a thread that ends leaves of its part.
    pub(crate) fn take_back(&self, segment: &Segment) {
        self.writer.take_back(segment);
    }

    /// Whether it is still to be noted which GPUs there are.
    #[inline(always)]
    pub(crate) fn wants_gpus(&self) -> bool {
        !self.knows_gpus.load(Relaxed)
    }

    /// Whether GPUs are to be noted, by the thread that asks: that is one.
    pub(crate) fn may_note_gpus(&self) -> bool {
        !self.knows_gpus.swap(true, Relaxed)
    }

    fn note(&self, kind: NoteKind, number: u32, strings: &[&[u8]]) {
        // A note that finds no room is the least that is lost then; calls are counted.
        os::without_signals_of_writing(|| self.writer.note(kind, number, strings));
    }

    /// Which process of which job this is.
    fn describe_process(&self, host: &str) {
        let program = fs::read_link("/proc/self/exe").unwrap_or_default();
        let arguments = fs::read("/proc/self/cmdline").unwrap_or_default();
        let arguments = arguments.strip_suffix(b"\0").unwrap_or(&arguments);
        let mut strings = vec![program.as_os_str().as_bytes()];
        strings.extend(arguments.split(|&byte| byte == 0));
        self.note(NoteKind::Program, 0, &strings);
        let boot = text_of("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let namespace = machine::process_namespace().unwrap_or_default();
        let start = machine::process_start("self").unwrap_or_default();
        self.note(NoteKind::Host, 0, &[host, &boot, &namespace, &start].map(str::as_bytes));
        self.note(NoteKind::Version, 0, &[b"p2pshim", env!("CARGO_PKG_VERSION").as_bytes()]);
        let ours = os::environment(config::PREFIX);
        let of_job = job::RANKS.iter().chain(job::HERE).chain(job::SIZES).chain(job::OTHERS);
        let ranks = of_job.filter_map(|&name| Some((OsString::from(name), os::variable(name)?)));
        let variables: Vec<(OsString, OsString)> = ours.chain(ranks).collect();
        for (name, value) in variables {
            self.note(NoteKind::Variable, 0, &[name.as_bytes(), value.as_bytes()]);
        }
    }

    /// Notes where a piece of code is, and of which build, if that was looked up.
    fn note_module(&self, module: &Module, build_id: Option<&str>) {
        let [start, end] = [module.range.start, module.range.end].map(|address| format!("{address:x}"));
        let offset = format!("{:x}", module.offset);
        let build_id = build_id.map(|build_id| format!("build_id={build_id}"));
        let mut strings = vec![start.as_bytes(), end.as_bytes(), offset.as_bytes(), &module.file];
        strings.extend(build_id.as_ref().map(String::as_bytes));
        self.note(NoteKind::Module, 0, &strings);
        if let Some((what, version)) = module.runtime_version().filter(|_| build_id.is_none()) {
            self.note(NoteKind::Version, 0, &[what, version]);
        }
    }

    /// Gives a place in the code a number.
    #[cold]
    pub(crate) fn new_site(&self, address: usize) -> u16 {
        // The lock makes a place get one number only.
        let mut modules = self.modules.lock();
        if let Some(number) = SITES.find(address) {
            return number;
        }
        // A library may have gone, and another come to where it was.
        self.learn_module_of(&mut modules, address, SITES.count() < SITES_READ_ANEW);
        let Some(number) = SITES.add(address) else { return 0 };
        self.note(NoteKind::Site, number.into(), &[format!("{address:x}").as_bytes()]);
        number
    }

    /// The number of a place in the code, with what else is known of where a call came from; none if there are too many.
    pub(crate) fn site_with(&self, address: usize, origin: &Origin) -> Option<u16> {
        let mut origins = self.origins.lock();
        let key = (address, origin.clone());
        if let Some(&number) = origins.get(&key) {
            return Some(number);
        }
        let number = if origins.len() < ORIGINS { SITES.take_number() } else { None }?;
        let mut modules = self.modules.lock();
        origin.callers.iter().for_each(|&caller| self.learn_module_of(&mut modules, caller, false));
        let strings: Vec<String> = std::iter::once(format!("{address:x}")).chain(origin.described()).collect();
        self.note(NoteKind::Site, number.into(), &strings.iter().map(String::as_bytes).collect::<Vec<_>>());
        origins.insert(key, number);
        Some(number)
    }

    /// Notes the module that an address lies in; of those that are known, if it is one of them and they are not to be read anew.
    fn learn_module_of(&self, modules: &mut Vec<Module>, address: usize, is_anew: bool) {
        if is_anew || !modules.iter().any(|module| module.covers(address)) {
            let mut there = modules::in_memory();
            for module in &mut there {
                match modules.iter().find(|known| known.is(module)) {
                    Some(known) => *module = known.clone(),
                    None => self.note_module(module, None),
                }
            }
            *modules = there;
        }
        if let Some(module) = modules.iter_mut().find(|module| module.covers(address))
            && let Some(build_id) = module.identify()
        {
            self.note_module(module, Some(&build_id));
        }
    }
}

fn text_of(file: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Places in the code that calls were made from, and their numbers: found without a lock, added under one.
struct Sites {
    /// By addresses of which the low bits are enough.
    numbers: Table<{ Self::PLACES }, 48>,
    count: AtomicU64,
    /// The last number that was given out, to these and to others.
    last: AtomicU16,
}

impl Sites {
    const PLACES: usize = 1 << 13;
    const ADDRESS: u64 = (1 << 48) - 1;

    const fn new() -> Self {
        Self { numbers: Table::new(), count: AtomicU64::new(0), last: AtomicU16::new(0) }
    }

    /// A place's number. None if it has none yet; 0 if there is no room for it, and will be none: it is not to be looked for again at
    /// each call.
    #[inline(always)]
    fn find(&self, address: usize) -> Option<u16> {
        let key = address as u64 & Self::ADDRESS;
        match self.numbers.find(key) {
            Some(number) => Some(number as u16),
            None => (!self.numbers.has_room(key)).then_some(0),
        }
    }

    fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// None if there is no room.
    fn add(&self, address: usize) -> Option<u16> {
        let key = address as u64 & Self::ADDRESS;
        let number = if self.numbers.has_room(key) { self.take_number() } else { None }?;
        self.numbers.set(key, number.into(), |_| false, false);
        self.count.fetch_add(1, Relaxed);
        Some(number)
    }

    /// A number that nothing has; none if all are taken.
    fn take_number(&self) -> Option<u16> {
        self.last.fetch_update(Relaxed, Relaxed, |last| last.checked_add(1)).ok().map(|last| last + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_each_has_one_number_until_there_is_no_room() {
        let sites = Box::new(Sites::new());
        assert_eq!(sites.find(0x1234), None);
        assert_eq!((sites.add(0x1234), sites.add(0xffff_7fff_0000_1234)), (Some(1), Some(2)));
        assert_eq!((sites.find(0x1234), sites.find(0xffff_7fff_0000_1234)), (Some(1), Some(2)));
        let added = (0..2 * Sites::PLACES).filter_map(|n| sites.add(0x10_0000 + 5 * n)).count();
        assert!((Sites::PLACES / 2..Sites::PLACES).contains(&added), "{added}");
        assert_eq!(sites.find(0x1234), Some(1));
        let without = (0..2 * Sites::PLACES).filter(|n| sites.find(0x10_0000 + 5 * n) == Some(0)).count();
        assert_eq!(without, 2 * Sites::PLACES - added, "no place is looked for at each call");
    }
}
