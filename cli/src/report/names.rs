//! The names that the numbers in a file stand for.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::ops::Range;

use p2pshim_host::{job, machine};
use p2pshim_trace::{CAPTURING, DeviceTime, Note, NoteKind, PART, REMOTE, REMOTE_LAST, Record, State, Timeline, Trace};

use super::model::{Line, Numbering, Origin};
use super::symbols::{Module, Place, Symbols};

/// Handles of memory on visible GPUs that are told apart.
const VISIBLE: usize = 60;

/// A GPU as a file tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) name: Option<String>,
    pub(super) uuid: Option<String>,
    pub(super) pci: Option<String>,
}

/// The known access of a device to the memory of another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) access: Option<bool>,
    pub(super) link: Option<String>,
}

impl Access {
    fn of(note: &Note) -> Self {
        let access = match note.value("access") {
            Some("1") => Some(true),
            Some("0") => Some(false),
            _ => None,
        };
        // Over PCIe there are no atomic operations.
        let link = match (access, note.value("native_atomics")) {
            (Some(true), Some("1")) => Some("probably NVLink".to_owned()),
            (Some(true), Some("0")) => Some("probably PCIe".to_owned()),
            _ => None,
        };
        Self { access, link }
    }
}

/// Memory that a process lets others open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exported {
    pub(super) ordinal: u8,
    /// `ipc`, `vmm`, `pool`.
    pub(super) how: String,
    /// Empty for a descriptor.
    pub(super) handle: String,
    pub(super) bytes: u64,
    /// In nanoseconds since 1970.
    pub(super) time: u64,
}

/// Memory of another process that a process has opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opened {
    pub(super) how: String,
    pub(super) handle: String,
    /// 0 if they are not known.
    pub(super) bytes: u64,
    /// The GPU where it lies, if the process knows.
    pub(super) uuid: Option<String>,
    /// Whether the process sees that GPU: then it is of this handle alone.
    pub(super) is_visible: bool,
    /// The device that was current then.
    pub(super) by: Option<u8>,
    pub(super) time: u64,
}

/// Memory of another process on a GPU that the process sees, while it is open: records have the GPU's ordinal.
#[derive(Clone, Debug)]
pub(super) struct Visible {
    pub(super) ordinal: u8,
    pub(super) addresses: Range<u64>,
    /// In ticks.
    pub(super) ticks: Range<u64>,
    /// The number that stands for it in counts, as one stands in records for other memory of other processes.
    pub(super) number: u8,
}

/// A call without a record that has failed.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    pub(super) site: u16,
    pub(super) time: u64,
    pub(super) function: String,
    pub(super) code: i32,
    pub(super) name: Option<String>,
    /// The ordinal of the current context's GPU.
    pub(super) device: Option<u8>,
    /// The ordinal of the GPU that has the memory, if the call is about memory.
    pub(super) of_memory: Option<u8>,
    pub(super) is_capturing: bool,
}

/// The first context of the process on a GPU.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) ordinal: u8,
    pub(super) thread: u32,
    pub(super) site: u16,
    pub(super) time: u64,
}

/// Two accesses that nothing orders.
#[derive(Clone, Debug)]
pub(super) struct Unordered {
    pub(super) time: u64,
    pub(super) level: String,
    /// The site, function, verb and stream of each access. The program queued the first one earlier.
    pub(super) sides: [(u16, [String; 3]); 2],
    pub(super) bytes: u64,
    pub(super) device: Option<u8>,
}

/// No allocation is larger.
pub(super) const MOST_BYTES: u64 = 1 << 42;

/// The bounds of the calls of a file that nothing has damaged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    functions: [bool; 256],
    devices: [bool; 256],
    /// When the trace was begun, in ticks, and how far from that its calls are at most.
    origin: u64,
    longest: u64,
}

impl Bounds {
    /// Whether something can have been then, in ticks.
    pub(super) fn is_near(&self, time: u64) -> bool {
        time.abs_diff(self.origin) <= self.longest
    }

    /// Whether a call can have been like this.
    pub(super) fn has(&self, record: &Record) -> bool {
        /// No memory is faster, in bytes a nanosecond.
        const FASTEST: u64 = 100_000;
        let is_known = |all: &[bool; 256], number: u8| all.get(usize::from(number)).copied().unwrap_or_default();
        let is_device = |device: Option<u8>| device.is_none_or(|device| is_known(&self.devices, device));
        // A program may ask for anything; only what was done has to be possible.
        let is_done = record.state == State::Done && record.result == 0;
        let is_timed = record.device_time == DeviceTime::Known;
        is_known(&self.functions, record.function)
            && self.is_near(record.start)
            && record.end.saturating_sub(record.start) <= self.longest
            && (!is_done || record.bytes <= MOST_BYTES && is_device(record.src_device) && is_device(record.dst_device))
            && (!is_timed || record.bytes / FASTEST <= record.device_nanos)
    }
}

/// By where it begins: the memory that was open there, one after the other.
pub(super) type AllVisible = BTreeMap<u64, Vec<Visible>>;

impl Visible {
    /// A record with numbers in place of GPUs, where its memory is another process's.
    pub(super) fn place(all: &AllVisible, record: Record) -> Record {
        let src_device = Self::number(all, record.src_device, record.src, record.start);
        let dst_device = Self::number(all, record.dst_device, record.dst, record.start);
        Record { src_device, dst_device, ..record }
    }

    fn number(all: &AllVisible, device: Option<u8>, address: u64, ticks: u64) -> Option<u8> {
        /// Memory that begins further below may reach there, but only if it was closed and other memory was opened in it.
        const NEAR: usize = 4;
        let is_it =
            |it: &&Self| Some(it.ordinal) == device && it.addresses.contains(&address) && it.ticks.contains(&ticks);
        let mut near = all.range(..=address).rev().take(NEAR).flat_map(|(_, there)| there.iter().rev());
        near.find(is_it).map(|it| it.number).or(device)
    }
}

/// The notes of a file, by what they are about.
#[derive(Debug, Default)]
pub(super) struct Names {
    functions: HashMap<u8, (String, String)>,
    rules: HashMap<u8, (String, String)>,
    codes: HashMap<(String, i32), String>,
    sites: HashMap<u16, (u64, u64)>,
    /// By site: the line of Python that called from there.
    lines: HashMap<u16, Line>,
    /// By site in a runtime: where that was called from, innermost first.
    callers: HashMap<u16, Vec<u64>>,
    modules: Vec<(u64, Module)>,
    /// Calls to share memory that have failed, by site, function, code and what is special: the code's name, and how many.
    pub(super) unshared: BTreeMap<(u16, String, i32, String), (String, u64)>,
    /// Other calls without a record that have failed.
    pub(super) failed: Vec<Failed>,
    /// The first contexts on GPUs.
    pub(super) contexts: Vec<Context>,
    /// By thread: where its Python can be read.
    pub(super) pythons: BTreeMap<u32, String>,
    /// Accesses that nothing orders.
    pub(super) unordered: Vec<Unordered>,
    pub(super) devices: BTreeMap<u8, Device>,
    pub(super) access: HashMap<[u8; 2], Access>,
    pub(super) exported: Vec<Exported>,
    /// By the handle of exported memory: when the process freed it.
    pub(super) freed: BTreeMap<String, u64>,
    /// By the number that stands for its device.
    pub(super) opened: BTreeMap<u8, Vec<Opened>>,
    pub(super) visible: AllVisible,
    pub(super) host: Option<String>,
    pub(super) boot_id: Option<String>,
    /// The namespace that its number of a process is in.
    pub(super) process_namespace: Option<String>,
    /// When the process was started.
    pub(super) process_start: Option<String>,
    pub(super) program: Vec<String>,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) versions: BTreeMap<String, String>,
}

impl Names {
    pub(super) fn of(trace: &Trace) -> Self {
        let mut names = Self::default();
        let timeline = trace.timeline();
        for note in trace.notes() {
            names.add(note, timeline.real(note.time));
        }
        // Numbers that records have too.
        let are_mixed = |number: &u8| names.opened.get(number).is_some_and(|all| all.iter().any(|it| !it.is_visible));
        let mixed: BTreeSet<u8> = names.visible.values().flatten().map(|it| it.number).filter(are_mixed).collect();
        names.visible.values_mut().for_each(|there| there.retain(|it| !mixed.contains(&it.number)));
        for (_, all) in names.opened.iter_mut().filter(|(number, _)| mixed.contains(number)) {
            all.retain(|it| !it.is_visible);
        }
        names
    }

    fn add(&mut self, note: &Note, time: u64) {
        let two = || (note.string(0).to_owned(), note.string(1).to_owned());
        let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let byte = u8::try_from(note.number);
        let pair = || {
            let [device, peer] = [note.number >> 8, note.number & 255].map(u8::try_from);
            Some([device.ok()?, peer.ok()?])
        };
        match (note.kind, byte) {
            (NoteKind::Program, _) => self.program.clone_from(&note.strings),
            (NoteKind::Variable, _) => self.variables.extend([two()]),
            (NoteKind::Version, _) => self.versions.extend([two()]),
            (NoteKind::Host, _) => {
                (self.host, self.boot_id) = (known(note.string(0)), known(note.string(1)));
                (self.process_namespace, self.process_start) = (known(note.string(2)), known(note.string(3)));
            }
            (NoteKind::Function, Ok(number)) => self.functions.extend([(number, two())]),
            (NoteKind::Rule, Ok(number)) => self.rules.extend([(number, two())]),
            (NoteKind::Code, _) => {
                let (layer, name) = two();
                self.codes.insert((layer, note.number.cast_signed()), name);
            }
            (NoteKind::Gpu, Ok(ordinal)) => {
                let [name, uuid, pci] = [0, 1, 2].map(|index| known(note.string(index)));
                self.devices.insert(ordinal, Device { name, uuid, pci });
            }
            (NoteKind::Exported, Ok(ordinal)) => self.add_exported(ordinal, note, time),
            (NoteKind::Opened, Ok(number)) => {
                let (how, handle) = two();
                let (bytes, uuid) = (note.string(2).parse().unwrap_or_default(), note.value("gpu").and_then(known));
                let by = note.string(3).parse().ok();
                let opened = Opened { how, handle, bytes, uuid, is_visible: false, by, time };
                match note.value("at").and_then(hexadecimal) {
                    Some(at) => self.add_visible(number, at, opened, note.time),
                    None => self.opened.entry(number).or_default().push(opened),
                }
            }
            (NoteKind::Peer, _) => self.access.extend(pair().map(|pair| (pair, Access::of(note)))),
            (NoteKind::Site, _) => self.add_site(note),
            (NoteKind::Unshared, _) => {
                let (Ok(site), Ok(code)) = (u16::try_from(note.number), note.string(1).parse()) else { return };
                let [function, name, of] = [0, 2, 3].map(|index| note.string(index).to_owned());
                self.unshared.entry((site, function, code, of)).or_insert((name, 0)).1 += 1;
            }
            (NoteKind::Failed, _) => self.add_failed(note, time),
            (NoteKind::Context, Ok(ordinal)) => {
                let (Ok(thread), Ok(site)) = (note.string(0).parse(), note.string(1).parse()) else { return };
                self.contexts.push(Context { ordinal, thread, site, time });
            }
            (NoteKind::Python, _) => _ = self.pythons.insert(note.number, note.string(0).to_owned()),
            (NoteKind::Race, _) => self.add_race(note, time),
            (NoteKind::Module, _) => {
                let [first, end, offset] = [0, 1, 2].map(|index| hexadecimal(note.string(index)));
                let (Some(first), Some(end), Some(offset)) = (first, end, offset) else { return };
                let build_id = note.value("build_id").and_then(known);
                let path = note.string(3).to_owned();
                self.modules.push((note.time, Module { first, end, offset, path, build_id, since: time }));
            }
            _ => {}
        }
    }

    fn add_race(&mut self, note: &Note, time: u64) {
        let mut first = (note.number >> 16) as u16;
        if let Some((path, offset)) = note.value("at").and_then(|at| at.rsplit_once('+')) {
            first = self.add_foreign(path, hexadecimal(offset).unwrap_or_default(), (note.time, time));
        }
        let side = |first: usize| std::array::from_fn(|index| note.string(first + index).to_owned());
        let sides = [(first, side(1)), (note.number as u16, side(4))];
        let (level, bytes) = (note.string(0).to_owned(), note.string(7).parse().unwrap_or_default());
        let device = note.string(8).parse().ok();
        self.unordered.push(Unordered { time, level, sides, bytes, device });
    }

    fn add_failed(&mut self, note: &Note, time: u64) {
        let (Ok(site), Ok(code)) = (u16::try_from(note.number), note.string(1).parse()) else { return };
        let name = Some(note.string(2).to_owned()).filter(|name| !name.is_empty());
        let function = note.string(0).to_owned();
        let [device, of_memory] = [3, 4].map(|index| note.string(index).parse().ok());
        let is_capturing = note.string(5) == CAPTURING;
        self.failed.push(Failed { site, time, function, code, name, device, of_memory, is_capturing });
    }

    /// Memory was exported or, if it has no bytes, freed; of a descriptor it may only be unknown how many there are.
    fn add_exported(&mut self, ordinal: u8, note: &Note, time: u64) {
        let [how, handle] = [0, 1].map(|index| note.string(index).to_owned());
        match note.string(2).parse().unwrap_or_default() {
            0 if !handle.is_empty() => _ = self.freed.insert(handle, time),
            bytes => self.exported.push(Exported { ordinal, how, handle, bytes, time }),
        }
    }

    /// Memory of a GPU that is visible was opened at an address, or closed: then it has no bytes. Each handle gets a number that records do not have,
    /// as far as there are any.
    fn add_visible(&mut self, ordinal: u8, at: u64, opened: Opened, ticks: u64) {
        /// Entries of one address, at most.
        const MOST: usize = 256;
        let there = self.visible.entry(at).or_default();
        if let Some(before) = there.last_mut() {
            before.ticks.end = before.ticks.end.min(ticks);
        }
        let uuid = self.devices.get(&ordinal).and_then(|device| device.uuid.clone());
        let known =
            self.opened.iter().find(|(_, all)| all.iter().any(|it| it.is_visible && it.handle == opened.handle));
        let number = match known.map(|(&number, _)| number) {
            Some(number) => Some(number),
            None => (REMOTE..REMOTE_LAST).rev().take(VISIBLE).find(|number| !self.opened.contains_key(number)),
        };
        let (Some(number), 1..) = (number, opened.bytes) else { return };
        let addresses = at..at.saturating_add(opened.bytes);
        if there.len() < MOST {
            there.push(Visible { ordinal, addresses, ticks: ticks..u64::MAX, number });
        }
        self.opened.entry(number).or_insert_with(|| vec![Opened { uuid, is_visible: true, ..opened }]);
    }

    /// The handles of memory that was opened while the GPU where it lies was current, each with the GPU.
    pub(super) fn opened_where_it_lies(&self) -> impl Iterator<Item = (&str, u8)> {
        self.visible.values().flatten().filter_map(|it| {
            let opened = self.opened.get(&it.number)?.first()?;
            (opened.by == Some(it.ordinal)).then_some((&*opened.handle, it.ordinal))
        })
    }

    /// The handles of memory that is never closed, as far as that is known, each with its bytes.
    pub(super) fn never_closed(&self) -> impl Iterator<Item = (&str, u64)> {
        let open = self.visible.values().flatten().filter(|it| it.ticks.end == u64::MAX);
        open.filter_map(|it| {
            let [opened] = &self.opened.get(&it.number)?[..] else { return None };
            Some((&*opened.handle, it.addresses.end - it.addresses.start)).filter(|(handle, _)| !handle.is_empty())
        })
    }

    fn add_site(&mut self, note: &Note) {
        let (Ok(number), Some(address)) = (u16::try_from(note.number), hexadecimal(note.string(0))) else {
            return;
        };
        self.sites.insert(number, (address, note.time));
        if let Some(callers) = note.value("callers") {
            self.callers.insert(number, callers.split(' ').filter_map(hexadecimal).collect());
        }
        let line = |nth: &str| {
            let text = |key: &str| note.value(&format!("{key}{nth}"));
            let (line, function) = (text("line")?.parse().ok()?, text("function")?.to_owned());
            Some(Line { file: text("python")?.to_owned(), line, function, outer: Vec::new() })
        };
        if let Some(inner) = line("") {
            let outer = ["2", "3"].into_iter().filter_map(line).collect();
            self.lines.insert(number, Line { outer, ..inner });
        }
    }

    /// A place in the code of another process: it gets a number that no other has, and its module addresses that no code has.
    fn add_foreign(&mut self, path: &str, offset: u64, (ticks, time): (u64, u64)) -> u16 {
        const BEYOND: u64 = 1 << 60;
        let address = BEYOND + offset;
        let number = (0..u16::MAX).rev().find(|number| !self.sites.contains_key(number)).unwrap_or_default();
        let (path, build_id) = (path.to_owned(), None);
        self.modules.push((ticks, Module { first: address, end: address + 1, offset, path, build_id, since: time }));
        self.sites.insert(number, (address, ticks));
        number
    }

    /// The bounds that each call of this file keeps.
    pub(super) fn bounds(&self, timeline: Timeline) -> Bounds {
        /// Nothing runs for longer.
        const LONGEST: u64 = 400 * 86_400 * 1_000_000_000;
        let numbers: [u8; 256] = std::array::from_fn(|number| number as u8);
        Bounds {
            functions: numbers.map(|it| it == PART || self.functions.is_empty() || self.functions.contains_key(&it)),
            devices: numbers.map(|it| it >= REMOTE || self.devices.is_empty() || self.devices.contains_key(&it)),
            origin: timeline.origin(),
            longest: timeline.ticks(LONGEST),
        }
    }

    /// Layer and name of a function.
    pub(super) fn function(&self, number: u8) -> (String, String) {
        if number == PART {
            return ("driver".to_owned(), "copies".to_owned());
        }
        self.functions.get(&number).cloned().unwrap_or_else(|| ("unknown".to_owned(), format!("function {number}")))
    }

    /// Id and severity of a rule.
    pub(super) fn rule(&self, number: u8) -> (String, String) {
        self.rules.get(&number).cloned().unwrap_or_else(|| (format!("rule {number}"), "unknown".to_owned()))
    }

    /// Whether the process was one of this machine since it was started, and one that we would see.
    pub(super) fn is_of_here(&self) -> bool {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let is_ours = |theirs: &String| {
            machine::sees_processes() && machine::process_namespace().is_some_and(|ours| ours == *theirs)
        };
        self.boot_id.as_deref() == Some(boot_id.trim()) && self.process_namespace.as_ref().is_none_or(is_ours)
    }

    /// The name of the code of a record.
    pub(super) fn code(&self, layer: &str, result: i32) -> Option<String> {
        let (given, numbering) = Numbering::split(result);
        let code = numbering.usual(given)?;
        let name = self.codes.get(&(layer.to_owned(), code)).cloned();
        name.or_else(|| match (layer, code) {
            ("runtime", 0) => Some("cudaSuccess".to_owned()),
            ("driver", 0) => Some("CUDA_SUCCESS".to_owned()),
            ("hip", 0) => Some("hipSuccess".to_owned()),
            _ => None,
        })
    }

    /// Which rank of its job the process is.
    pub(super) fn rank(&self) -> Option<String> {
        job::RANKS.iter().find_map(|name| self.variables.get(*name)).cloned()
    }

    /// Where in memory a site is; 0 if it is not known.
    pub(super) fn address(&self, site: u16) -> u64 {
        self.sites.get(&site).map_or(0, |&(address, _)| address)
    }

    /// The line of Python that a site is of, if it was looked for.
    pub(super) fn line(&self, site: u16) -> Option<&Line> {
        self.lines.get(&site)
    }

    /// Whether anything was found out about a site besides its address.
    pub(super) fn has_origins(&self) -> bool {
        !self.lines.is_empty() || !self.callers.is_empty()
    }

    /// Where a call came from.
    pub(super) fn origin(&self, site: u16, symbols: &mut Symbols) -> Origin {
        let (place, host) = (self.place(site), self.host.as_deref());
        let time = self.sites.get(&site).map_or(0, |(_, time)| *time);
        let caller = self.callers.get(&site).zip(place.clone()).and_then(|(callers, place)| {
            let callers = callers.iter().map(|&address| self.place_at(address, time));
            let places: Vec<Place> = std::iter::once(place).chain(callers).collect();
            symbols.describe_caller(&places, host)
        });
        Origin { site: symbols.describe(place.as_ref(), host), caller, python: self.line(site).cloned() }
    }

    /// Releases of NVIDIA's static runtime in the modules that called, and which modules these are.
    pub(super) fn static_runtimes(&self, symbols: &mut Symbols) -> Option<String> {
        let host = self.host.as_deref();
        let found = self.modules.iter().filter_map(|(_, module)| symbols.static_runtime(module, host));
        let found: BTreeSet<String> = found.map(|(name, release)| format!("{release} in {name}")).collect();
        (!found.is_empty()).then(|| found.into_iter().collect::<Vec<_>>().join(" and "))
    }

    /// Where a place in the code is: in the module that was there when the place was first called from.
    pub(super) fn place(&self, site: u16) -> Option<Place> {
        let &(address, time) = self.sites.get(&site)?;
        Some(self.place_at(address, time))
    }

    fn place_at(&self, address: u64, time: u64) -> Place {
        let covering = |(_, module): &&(u64, Module)| (module.first..module.end).contains(&address);
        let before = |(noted, _): &&(u64, Module)| *noted <= time;
        let module = self.modules.iter().filter(covering).filter(before).max_by_key(|(noted, _)| *noted);
        Place { address, module: module.map(|(_, module)| module.clone()) }
    }
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_module_is_the_latest_before_the_site() {
        let note = |kind, number, time, strings: &[&str]| Note {
            kind,
            number,
            time,
            strings: strings.iter().map(|&text| text.to_owned()).collect(),
        };
        let mut names = Names::default();
        for (time, path) in [(1, "/first"), (5, "/second"), (9, "/third")] {
            names.add(&note(NoteKind::Module, 0, time, &["1000", "2000", "0", path]), time);
        }
        names.add(&note(NoteKind::Site, 1, 6, &["1500"]), 6);
        names.add(&note(NoteKind::Site, 2, 6, &["2000"]), 6);
        assert_eq!(names.place(1).unwrap().module.unwrap().path, "/second");
        assert_eq!(names.place(2).unwrap().module, None, "after the last address");
        assert!(names.place(3).is_none());
    }

    #[test]
    fn visible_memory_is_another_process_s_while_it_is_open() {
        let mut names = Names::default();
        let mut opened = |number, time, strings: &[&str]| {
            let strings = strings.iter().map(|&text| text.to_owned()).collect();
            names.add(&Note { kind: NoteKind::Opened, number, time, strings }, time);
        };
        opened(1, 10, &["ipc", "aa", "4096", "0", "at=10000"]);
        opened(1, 20, &["ipc", "bb", "4096", "0", "at=20000"]);
        opened(1, 30, &["ipc", "aa", "0", "-1", "at=10000"]);
        opened(1, 40, &["ipc", "cc", "4096", "0", "at=10000"]);
        // Other memory at an address that was not told to be closed.
        opened(1, 50, &["ipc", "aa", "4096", "0", "at=20000"]);
        let [first, second, third] = [REMOTE_LAST - 1, REMOTE_LAST - 2, REMOTE_LAST - 3];
        for (ordinal, address, start, found) in [
            (1, 0x10000, 9, 1),
            (1, 0x10000, 10, first),
            (1, 0x10fff, 29, first),
            (1, 0x11000, 29, 1),
            (0, 0x10000, 29, 0),
            (1, 0x10000, 30, 1),
            (1, 0x10000, 40, third),
            (1, 0x20000, 49, second),
            (1, 0x20000, 50, first),
        ] {
            let number = Visible::number(&names.visible, Some(ordinal), address, start);
            assert_eq!(number, Some(found), "{ordinal} {address:x} {start}");
        }
    }

    #[test]
    fn rank_the_framework_knows_better_than_the_launcher() {
        let mut names = Names::default();
        names.variables.extend([("SLURM_PROCID".to_owned(), "7".to_owned())]);
        assert_eq!(names.rank().as_deref(), Some("7"));
        names.variables.extend([("RANK".to_owned(), "3".to_owned())]);
        assert_eq!(names.rank().as_deref(), Some("3"));
    }
}
