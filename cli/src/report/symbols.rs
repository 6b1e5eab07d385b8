//! The words for a place in the code: module and offset always; function and line if the module's file is still the one that
//! ran.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use object::{Object, ObjectSegment, ReadCache};

use super::model::is_glue;
use super::runtime::{self, Runtime};

/// The words for a place that nothing is known of.
pub(super) const UNKNOWN: &str = "unknown place";

/// A piece of code in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Module {
    pub(super) first: u64,
    /// The address after the last.
    pub(super) end: u64,
    /// The place of `first` in the file.
    pub(super) offset: u64,
    pub(super) path: String,
    pub(super) build_id: Option<String>,
    /// When it was seen there, in nanoseconds since 1970.
    pub(super) since: u64,
}

/// A place in the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Where a call returns to.
    pub(super) address: u64,
    pub(super) module: Option<Module>,
}

/// Looks places up.
pub(super) struct Symbols {
    is_on: bool,
    host: Option<String>,
    files: HashMap<String, Option<ModuleFile>>,
    /// By module, offset and whether its file is the one that ran.
    known: HashMap<(String, u64, bool), String>,
}

/// The file of a module, as it is now.
struct ModuleFile {
    /// The last change of its contents or of its name, in nanoseconds since 1970.
    changed: u64,
    build_id: Option<String>,
    /// Offset in the file, bytes, and address of each part that is loaded.
    segments: Vec<(u64, u64, u64)>,
    loader: Option<addr2line::Loader>,
    path: String,
    /// Where in it NVIDIA's static runtime is; none if that cannot be told.
    runtime: OnceCell<Option<Runtime>>,
    /// The release of the runtime; none if there is none.
    release: OnceCell<Option<&'static str>>,
}

/// Whether a place is in the CUDA runtime.
enum Within {
    Runtime,
    Program,
    /// Its file has no symbols, or is another one by now.
    Unknown,
}

impl Symbols {
    pub(super) fn new(is_on: bool) -> Self {
        let host = Some(p2pshim_host::machine::host_name());
        Self { is_on, host, files: HashMap::new(), known: HashMap::new() }
    }

    /// Describes a place in the code of a program that ran on `host`.
    pub(super) fn describe(&mut self, place: Option<&Place>, host: Option<&str>) -> String {
        let Some(Place { address, module }) = place else { return UNKNOWN.to_owned() };
        let Some(module) = module else { return format!("{address:#x}") };
        let offset = module.offset_of(*address);
        let file = file_of(&mut self.files, (self.is_on, self.host.as_deref()), module, host);
        let key = (module.path.clone(), offset, file.is_some());
        self.known.entry(key).or_insert_with(|| describe(module, offset, file)).clone()
    }

    /// Describes, of a place in the code and those that it was called from in turn, the first that is not in the CUDA runtime; all
    /// of them if that cannot be told, and nothing if it is the place itself.
    pub(super) fn describe_caller(&mut self, places: &[Place], host: Option<&str>) -> Option<String> {
        let is_glue = |place: &Place| place.module.as_ref().is_some_and(|module| is_glue(module.name()));
        let (first, outer) = places.split_first()?;
        let kept: Vec<Place> =
            std::iter::once(first).chain(outer.iter().filter(|place| !is_glue(place))).cloned().collect();
        let places = if kept.len() > 1 { &kept[..] } else { places };
        let mut before: Option<&str> = None;
        for (index, place) in places.iter().enumerate() {
            let path = place.module.as_ref().map(|module| module.path.as_str());
            // A place in another module is not in the same runtime.
            let is_outside = before.is_some() && before != path;
            match if is_outside { Within::Program } else { self.within(place, host) } {
                Within::Runtime => before = path,
                Within::Program if index == 0 => return None,
                Within::Program => return Some(self.describe(Some(place), host)),
                Within::Unknown => {
                    let all: Vec<String> = places.iter().map(|place| self.describe(Some(place), host)).collect();
                    return (all.len() > 1).then(|| all.join(" < "));
                }
            }
        }
        None
    }

    /// Name of a module and release of NVIDIA's static runtime in it, as far as the strings of its file tell it.
    pub(super) fn static_runtime<'a>(
        &mut self,
        module: &'a Module,
        host: Option<&str>,
    ) -> Option<(&'a str, &'static str)> {
        let file = file_of(&mut self.files, (self.is_on, self.host.as_deref()), module, host)?;
        let release = file.release.get_or_init(|| runtime::release(&file.path));
        release.filter(|_| !module.is_shared_runtime()).map(|release| (module.name(), release))
    }

    fn within(&mut self, place: &Place, host: Option<&str>) -> Within {
        let Some(module) = &place.module else { return Within::Unknown };
        if module.is_shared_runtime() {
            return Within::Runtime;
        }
        let file = file_of(&mut self.files, (self.is_on, self.host.as_deref()), module, host);
        let found = file.and_then(|file| {
            let runtime = file.runtime.get_or_init(|| Runtime::find(&file.path)).as_ref()?;
            Some((runtime, file.address(module.offset_of(place.address))?))
        });
        match found {
            Some((runtime, address)) if runtime.has(address.saturating_sub(1)) => Within::Runtime,
            Some(_) => Within::Program,
            None => Within::Unknown,
        }
    }
}

/// The file of a module of a program that ran on `host`, if it is still the one that ran, and files may be read. `here` is whether
/// they may, and this host.
fn file_of<'a>(
    files: &'a mut HashMap<String, Option<ModuleFile>>,
    (is_on, here): (bool, Option<&str>),
    module: &Module,
    host: Option<&str>,
) -> Option<&'a ModuleFile> {
    if !is_on || !Path::new(&module.path).is_absolute() {
        return None;
    }
    let file = files.entry(module.path.clone()).or_insert_with(|| ModuleFile::open(&module.path)).as_ref();
    file.filter(|file| file.is_that_of(module, here.is_some() && here == host))
}

impl Module {
    /// Where in the file an address is.
    fn offset_of(&self, address: u64) -> u64 {
        address.saturating_sub(self.first).saturating_add(self.offset)
    }

    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    fn is_shared_runtime(&self) -> bool {
        self.name().starts_with("libcudart.so")
    }
}

fn describe(module: &Module, offset: u64, file: Option<&ModuleFile>) -> String {
    let name = module.name();
    let name = if name.is_empty() { "unknown module" } else { name };
    let found = file.and_then(|file| Some((file, file.address(offset)?)));
    let Some((file, address)) = found else { return format!("{name}+{offset:#x}") };
    // The address is where the call returns to; the call itself stands before it.
    let (function, line) = file.look_up(address.saturating_sub(1));
    if function.as_deref().is_some_and(runtime::is_internal) {
        return format!("{name}+{address:#x} in NVIDIA's static runtime");
    }
    let function = function.map(|function| format!(" {function}")).unwrap_or_default();
    let line = line.map(|line| format!(" ({line})")).unwrap_or_default();
    format!("{name}+{address:#x}{function}{line}")
}

impl ModuleFile {
    fn open(path: &str) -> Option<Self> {
        let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        let nanos = |seconds: i64, nanos: i64| {
            let seconds = u64::try_from(seconds).unwrap_or_default();
            seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(nanos).unwrap_or_default())
        };
        let changed =
            nanos(metadata.mtime(), metadata.mtime_nsec()).max(nanos(metadata.ctime(), metadata.ctime_nsec()));
        let cache = ReadCache::new(File::open(path).ok()?);
        let object = object::File::parse(&cache).ok()?;
        let segments = object.segments().map(|segment| {
            let (offset, bytes) = segment.file_range();
            (offset, bytes, segment.address())
        });
        let hexadecimal = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Some(Self {
            changed,
            build_id: object.build_id().ok().flatten().map(hexadecimal),
            segments: segments.collect(),
            loader: addr2line::Loader::new(path).ok(),
            path: path.to_owned(),
            runtime: OnceCell::new(),
            release: OnceCell::new(),
        })
    }

    /// Whether the file is the one that was loaded. By its build id, if that was noted; else it has to be on this host, and
    /// not to have changed since.
    fn is_that_of(&self, module: &Module, is_here: bool) -> bool {
        match &module.build_id {
            Some(noted) => self.build_id.as_ref().is_some_and(|build_id| build_id.eq_ignore_ascii_case(noted)),
            None => is_here && self.changed <= module.since,
        }
    }

    /// The address, in the file's own terms, of what lies at an offset.
    fn address(&self, offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|&(start, bytes, address)| {
            // A call may be the last instruction of a segment.
            let inside = offset.checked_sub(start).filter(|&inside| inside <= bytes)?;
            address.checked_add(inside)
        })
    }

    /// Function and line.
    fn look_up(&self, address: u64) -> (Option<String>, Option<String>) {
        let Some(loader) = &self.loader else { return (None, None) };
        let frame = loader.find_frames(address).ok().and_then(|mut frames| frames.next().ok().flatten());
        let named = frame.as_ref().and_then(|frame| {
            let function = frame.function.as_ref()?;
            Some(function.demangle().ok()?.into_owned())
        });
        let exported = || {
            let name = loader.find_symbol(address)?;
            Some(addr2line::demangle_auto(Cow::from(name), None).into_owned())
        };
        let line = frame.and_then(|frame| {
            let location = frame.location?;
            let file = location.file?.rsplit('/').next().unwrap_or_default().to_owned();
            Some(location.line.map_or_else(|| file.clone(), |line| format!("{file}:{line}")))
        });
        (named.or_else(exported), line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::each;

    fn module(path: &str) -> Module {
        Module { first: 0x7000_0000, end: 0x7000_2000, offset: 0x1000, path: path.to_owned(), build_id: None, since: 1 }
    }

    #[test]
    fn describe_without_the_file_is_module_and_offset() {
        let mut symbols = Symbols::new(true);
        let mut say = |place: Option<&Place>| symbols.describe(place, None);
        let place = Place { address: 0x7000_0234, module: Some(module("/nowhere/at/all/app")) };
        assert_eq!(say(Some(&place)), "app+0x1234");
        assert_eq!(say(Some(&Place { address: 0x1234, module: None })), "0x1234");
        assert_eq!(say(Some(&Place { address: 0x7000_0000, module: Some(module("")) })), "unknown module+0x1000");
        assert_eq!(say(None), UNKNOWN);
    }

    #[test]
    fn describe_caller_leaves_out_libraries_by_which_interpreters_call() {
        let mut symbols = Symbols::new(true);
        let place = |path: &str| Place { address: 0x7000_0234, module: Some(module(path)) };
        let chain = |symbols: &mut Symbols, paths: &[&str]| {
            symbols.describe_caller(&paths.iter().map(|path| place(path)).collect::<Vec<_>>(), None)
        };
        let ffi = "/nowhere/libffi.so.8";
        let all = ["/nowhere/app", ffi, "/nowhere/_ctypes.cpython-311.so", "/nowhere/python3.11"];
        assert_eq!(chain(&mut symbols, &all).as_deref(), Some("app+0x1234 < python3.11+0x1234"));
        assert_eq!(chain(&mut symbols, &["/nowhere/app", ffi]).as_deref(), Some("app+0x1234 < libffi.so.8+0x1234"));
        assert_eq!(chain(&mut symbols, &[]), None);
    }

    #[test]
    fn describe_of_what_is_no_module_is_module_and_offset() {
        let mut symbols = Symbols::new(true);
        let host = symbols.host.clone();
        for path in ["/proc/self/status", "/dev/null", "/tmp", "[vdso]", "status"] {
            let place = Place { address: 0x7000_0234, module: Some(Module { since: u64::MAX, ..module(path) }) };
            let name = path.rsplit('/').next().unwrap();
            assert_eq!(symbols.describe(Some(&place), host.as_deref()), format!("{name}+0x1234"));
        }
    }

    /// Programs of a trace may have been damaged, or replaced, as well.
    #[test]
    fn damaged_files_of_programs_are_described_as_far_as_they_go() {
        // With lines, where the C programs have been built.
        let samples = ["../target/c-tests/demo_copies-12", "/bin/true"];
        let good = samples.iter().find_map(|path| fs::read(path).ok()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app");
        let module = Module { since: u64::MAX, ..module(path.to_str().unwrap()) };
        each(100, |_, random| {
            let mut bytes = good.clone();
            for _ in 0..random.below(6) {
                // Headers are where damage matters.
                let at = [random.below(bytes.len()), random.below(1000), bytes.len() - 1 - random.below(4000)];
                let value = [0, 1, 255, random.below(256) as u8];
                bytes[random.one_of(&at)] = random.one_of(&value);
            }
            bytes.truncate(bytes.len() - [0, random.below(bytes.len())][usize::from(random.below(4) == 0)]);
            fs::write(&path, &bytes).unwrap();
            let mut symbols = Symbols::new(true);
            let host = symbols.host.clone();
            let places = [0x132d, random.below(bytes.len()) as u64].map(|offset| Place {
                address: 0x7000_0000 + offset,
                module: Some(Module { offset: 0, ..module.clone() }),
            });
            let said = places.each_ref().map(|place| symbols.describe(Some(place), host.as_deref()));
            assert!(said.iter().all(|said| said.starts_with("app+0x") && said.len() < 10_000), "{said:?}");
            symbols.describe_caller(&places, host.as_deref());
            symbols.static_runtime(&module, host.as_deref());
        });
    }
}
