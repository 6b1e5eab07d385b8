//! The names that the numbers in a file stand for.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;

use p2pshim_host::{job, machine};
use p2pshim_trace::{Note, NoteKind, PART, Trace};

use super::model::{Line, Origin, Sampled};
use super::symbols::{Module, Place, Symbols};

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
    pub(super) time: u64,
}

/// The second halves of copies by hand, by their devices and their site.
pub(super) type SecondHalf = ([u8; 2], u16);

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
    /// The sites of the first halves of copies by hand, and what samples of the bytes say.
    pub(super) host_ways: BTreeMap<SecondHalf, Vec<(u16, Sampled)>>,
    /// Calls to share memory that have failed, by site, function, code and what is special: the code's name, and how many.
    pub(super) unshared: BTreeMap<(u16, String, i32, String), (String, u64)>,
    pub(super) devices: BTreeMap<u8, Device>,
    pub(super) access: HashMap<[u8; 2], Access>,
    pub(super) exported: Vec<Exported>,
    /// By the number that stands for its device.
    pub(super) opened: BTreeMap<u8, Vec<Opened>>,
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
            (NoteKind::Exported, Ok(ordinal)) => {
                let (how, handle) = two();
                let bytes = note.string(2).parse().unwrap_or_default();
                self.exported.push(Exported { ordinal, how, handle, bytes, time });
            }
            (NoteKind::Opened, Ok(number)) => {
                let (how, handle) = two();
                let (bytes, uuid) = (note.string(2).parse().unwrap_or_default(), note.value("gpu").and_then(known));
                self.opened.entry(number).or_default().push(Opened { how, handle, bytes, uuid, time });
            }
            (NoteKind::Peer, _) => {
                let access = note.value("access").and_then(|value| match value {
                    "1" => Some(true),
                    "0" => Some(false),
                    _ => None,
                });
                let access = Access { access, link: note.value("link").and_then(known) };
                self.access.extend(pair().map(|pair| (pair, access)));
            }
            (NoteKind::Site, _) => self.add_site(note),
            (NoteKind::HostWay, _) => {
                let way = host_way(note);
                way.into_iter().for_each(|(to, from)| self.host_ways.entry(to).or_default().push(from));
            }
            (NoteKind::Unshared, _) => {
                let (Ok(site), Ok(code)) = (u16::try_from(note.number), note.string(1).parse()) else { return };
                let [function, name, of] = [0, 2, 3].map(|index| note.string(index).to_owned());
                let (_, count) = self.unshared.entry((site, function, code, of)).or_insert((name, 0));
                *count = (*count).max(note.string(4).parse().unwrap_or_default());
            }
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

    fn add_site(&mut self, note: &Note) {
        let (Ok(number), Some(address)) = (u16::try_from(note.number), hexadecimal(note.string(0))) else {
            return;
        };
        self.sites.insert(number, (address, note.time));
        if let Some(callers) = note.value("callers") {
            self.callers.insert(number, callers.split(' ').filter_map(hexadecimal).collect());
        }
        if let Some(file) = note.value("python") {
            let text = |key| note.value(key).unwrap_or_default();
            let line = text("line").parse().unwrap_or_default();
            self.lines.insert(number, Line { file: file.to_owned(), line, function: text("function").to_owned() });
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
        let is_ours = |theirs: &String| machine::process_namespace().is_some_and(|ours| ours == *theirs);
        self.boot_id.as_deref() == Some(boot_id.trim()) && self.process_namespace.as_ref().is_none_or(is_ours)
    }

    /// A code's name.
    pub(super) fn code(&self, layer: &str, code: i32) -> Option<String> {
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

/// The halves of copies by hand that a note names, and what samples say.
fn host_way(note: &Note) -> Option<(SecondHalf, (u16, Sampled))> {
    let device = |index| note.string(index).parse().ok();
    let (from, to) = (note.string(0).parse().ok()?, u16::try_from(note.number).ok()?);
    Some((([device(2)?, device(3)?], to), (from, Sampled::named(note.string(1)))))
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
    fn rank_the_framework_knows_better_than_the_launcher() {
        let mut names = Names::default();
        names.variables.extend([("SLURM_PROCID".to_owned(), "7".to_owned())]);
        assert_eq!(names.rank().as_deref(), Some("7"));
        names.variables.extend([("RANK".to_owned(), "3".to_owned())]);
        assert_eq!(names.rank().as_deref(), Some("3"));
    }
}
