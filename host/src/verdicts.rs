//! Verdicts on pairs, kept in files: `p2pshim doctor` and `p2pshim run` write them, and the shim reads them.
//!
//! A file a pair, such as
//!
//! ```text
//! p2pshim verdict 3
//! from GPU-8932f937-d72c-4106-c12f-20bd9faed9f6 0000:01:00.0
//! to GPU-c2e3a5a0-4b5f-4a9e-8d62-41e6ab7c0bb1 0000:02:00.0
//! driver 13000 580.159.04
//! boot 3e4f3ea3-7f0a-4d7b-9a39-4a0a1c3a6b2e
//! bar1 0x4000000000 0x4000000000
//! iommu identity identity
//! copies right
//! ipc wrong 4096 of 4096 bytes never arrived, the first at 0
//! vmm untested cuMemExportToShareableHandle returned CUDA_ERROR_NOT_SUPPORTED (801)
//! speed-direct 48.21
//! staging 64-256 one-link driver 37.50 p2pshim 51.72
//! end
//! ```
//!
//! They lie in the user's cache and, if root has made them, in `/run/p2pshim`, where all users read them.
//!
//! The key comes first: a file that does not begin with exactly this says nothing. A line for each part and speed follows, and for
//! each size of copies and number of busy links who stages how fast: MiB, and GB/s a link. A file without these says that nothing was
//! measured.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use crate::verdict::{Verdict, plain};

/// The pair that a verdict is on: the device that reaches, and the one that is reached.
#[derive(Clone, Debug)]
pub struct Question {
    /// UUID of the device that reaches, as `CUDA_VISIBLE_DEVICES` takes it.
    pub from_uuid: String,
    /// Where it is on the PCI bus, whatever the case of the digits.
    pub from_bus_id: String,
    /// UUID of the device that is reached.
    pub to_uuid: String,
    /// Where that one is.
    pub to_bus_id: String,
    /// The version that `cuDriverGetVersion` writes.
    pub driver_version: i32,
    /// The [`faults`] of GPUs that are simulated: with others anything else may be right.
    pub faults: Option<String>,
}

/// The variables that give simulated GPUs their faults, on one line.
pub fn faults(variable: impl Fn(&str) -> Option<OsString>) -> String {
    let value = |name| variable(name).unwrap_or_default().to_string_lossy().into_owned();
    plain(&format!("{};{}", value("P2PSIM_FAULT"), value("P2PSIM_NO_P2P")))
}

/// The key that a verdict is kept by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Name of the file.
    name: String,
    /// The text that the file has to begin with.
    head: String,
}

/// Facts that verdicts depend on besides their questions, read where they are needed first: none changes while a process uses the GPUs.
#[derive(Default)]
pub struct Facts {
    /// The run of the machine, and the version of the kernel module.
    machine: Option<(String, String)>,
    /// By addresses on the PCI bus.
    places: BTreeMap<String, Place>,
}

impl Facts {
    /// Nothing is read yet.
    pub const fn new() -> Self {
        Self { machine: None, places: BTreeMap::new() }
    }

    /// The key of a question on this machine, as it runs now; none if the system does not say when it was started.
    pub fn key(&mut self, question: &Question) -> Option<Key> {
        if self.machine.is_none() {
            self.machine = Some((boot()?, kernel_module().unwrap_or_else(|| "-".to_owned())));
        }
        let places = [&question.from_bus_id, &question.to_bus_id].map(|bus_id| self.place(bus_id).clone());
        let (boot, module) = self.machine.as_ref()?;
        Some(key_of(question, module, boot, &places))
    }

    /// The other facts of a GPU.
    pub fn place(&mut self, bus_id: &str) -> &Place {
        let place = self.places.entry(bus_id.to_owned());
        place.or_insert_with(|| Place::read(Path::new("/"), bus_id))
    }
}

/// The key under which it is kept that all of these GPUs were checked, in that way.
pub fn key_of_all(gpus: &[String], faults: Option<&str>, way: &str) -> Option<Key> {
    let first = gpus.first().map_or("-", String::as_str);
    let head = format!("{FIRST}\nall {}\nboot {}\n{}", plain(&gpus.join(" ")), boot()?, simulated(faults));
    Some(Key { name: format!("{way}_{}.{CHECKED}", part_of_name(first)), head })
}

/// How the names of files end: of verdicts, of notes that all GPUs were checked.
const VERDICT: &str = "txt";
const CHECKED: &str = "checked";
/// The end of the names of files that others read.
const PUBLISHED: &str = "json";
/// The first line of each file.
const FIRST: &str = "p2pshim verdict 3";

/// The line of the key about simulated GPUs; nothing of others.
fn simulated(faults: Option<&str>) -> String {
    faults.map(|faults| format!("simulated {}\n", plain(faults))).unwrap_or_default()
}

/// The text that tells this run of the machine from others, also from those of other machines.
pub fn boot() -> Option<String> {
    line_of(Path::new("/proc/sys/kernel/random/boot_id"))
}

/// The version of NVIDIA's kernel module.
pub fn kernel_module() -> Option<String> {
    kernel_module_of(Path::new("/"))
}

/// The version on a machine whose files lie below `root`.
pub fn kernel_module_of(root: &Path) -> Option<String> {
    line_of(&root.join("sys/module/nvidia/version"))
}

fn line_of(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The other facts of a GPU that a path depends on: they can change without a boot.
#[derive(Clone)]
pub struct Place {
    /// Bytes of BAR1, the window that other devices reach its memory by; `-` if that is not known.
    pub bar1: String,
    /// The IOMMU's translation of its addresses, likewise.
    pub iommu: String,
}

impl Place {
    fn read(root: &Path, bus_id: &str) -> Self {
        let folder = root.join("sys/bus/pci/devices").join(bus_id.to_ascii_lowercase());
        let known = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let bar1 = bar1(root, bus_id).map(|bytes| format!("{bytes:#x}"));
        let iommu = fs::read_to_string(folder.join("iommu_group/type")).ok().map(|text| text.trim().to_owned());
        Self { bar1: known(bar1), iommu: known(iommu) }
    }
}

/// The size of a GPU's BAR1, the second region of the PCI device, as sysfs below `root` has it.
pub fn bar1(root: &Path, bus_id: &str) -> Option<u64> {
    let table = root.join("sys/bus/pci/devices").join(bus_id.to_ascii_lowercase()).join("resource");
    let table = fs::read_to_string(table).ok()?;
    // A line each, of start, end and flags.
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let mut fields = table.lines().nth(1)?.split(' ');
    let (start, end) = (number(fields.next()?)?, number(fields.next()?)?);
    // PCI has no other sizes.
    end.checked_add(1)?.checked_sub(start).filter(|&bytes| bytes > 1 && bytes.is_power_of_two())
}

fn key_of(question: &Question, module: &str, boot: &str, [one, other]: &[Place; 2]) -> Key {
    let Question { from_uuid, from_bus_id, to_uuid, to_bus_id, driver_version, faults } = question;
    let (from, to) = (part_of_name(from_uuid), part_of_name(to_uuid));
    let head = [
        FIRST.to_owned(),
        format!("from {from} {}", plain(from_bus_id).to_ascii_lowercase()),
        format!("to {to} {}", plain(to_bus_id).to_ascii_lowercase()),
        format!("driver {driver_version} {}", plain(module)),
        format!("boot {}", plain(boot)),
        format!("bar1 {} {}", one.bar1, other.bar1),
        format!("iommu {} {}\n{}", plain(&one.iommu), plain(&other.iommu), simulated(faults.as_deref())),
    ];
    Key { name: name_of([from_uuid, to_uuid]), head: head.join("\n") }
}

/// The name of a verdict's file.
fn name_of(uuids: [&str; 2]) -> String {
    let [from, to] = uuids.map(part_of_name);
    format!("{from}_{to}.{VERDICT}")
}

/// A UUID as a part of a file's name, which it is already unless the driver writes strange ones.
fn part_of_name(uuid: &str) -> String {
    plain(uuid).replace('/', "_")
}

/// The question that a file answers, by its key.
fn question_of(text: &str) -> Option<Question> {
    let line = |word: &str| text.lines().find_map(|line| line.strip_prefix(word));
    let gpu = |word| Some(line(word)?.split_once(' ')?).map(|(uuid, bus_id)| (uuid.to_owned(), bus_id.to_owned()));
    let ((from_uuid, from_bus_id), (to_uuid, to_bus_id)) = (gpu("from ")?, gpu("to ")?);
    let driver_version = line("driver ")?.split(' ').next()?.parse().ok()?;
    let faults = line("simulated ").map(str::to_owned);
    Some(Question { from_uuid, from_bus_id, to_uuid, to_bus_id, driver_version, faults })
}

/// A verdict out of those that lie in several places: a failure that any of them has stays.
pub fn together(verdicts: impl IntoIterator<Item = Verdict>) -> Option<Verdict> {
    verdicts.into_iter().reduce(|known, other| known.updated(other, true))
}

/// Verdicts, a file each, in a folder that only its owner can write to.
pub struct Cache {
    /// Where they are.
    folder: PathBuf,
    /// Its owner: the user that the process runs as, or root.
    user: u32,
    /// The mode of files. Nobody may have more rights.
    mode: u32,
    /// How many of the folders above it may have to be there: it is made in the nearest.
    above: usize,
}

impl Cache {
    /// No file of ours is larger, in bytes.
    const LARGEST: u64 = 8192;

    /// The cache of the user whose folders these are, if there is a place for one.
    pub fn of(cache_home: Option<OsString>, home: Option<OsString>, user: u32) -> Option<Self> {
        let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
        // A home is never made: whoever names one that is not there has none.
        let of_home = || Some((home.and_then(absolute)?.join(".cache"), 2));
        let (base, above) = cache_home.and_then(absolute).map(|base| (base, usize::MAX)).or_else(of_home)?;
        Some(Self { folder: base.join("p2pshim"), user, mode: 0o600, above })
    }

    /// The verdicts of root, which all users read, of the machine whose files are below `root`. They go with the boot that they are of.
    pub fn of_system(root: &Path) -> Self {
        // The system makes the folder above.
        Self { folder: root.join("run/p2pshim"), user: 0, mode: 0o644, above: 1 }
    }

    /// Where they are kept.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The verdict that was found before. Where there is no file, nothing is asked of the system for the key.
    pub fn find(&self, facts: &mut Facts, question: &Question) -> Option<Verdict> {
        let text = self.read(&name_of([&question.from_uuid, &question.to_uuid]))?;
        parse(&text, &facts.key(question)?)
    }

    /// The verdict that is kept by a key.
    pub fn get(&self, key: &Key) -> Option<Verdict> {
        parse(&self.read(&key.name)?, key)
    }

    /// When that was written, if the system tells.
    pub fn time(&self, key: &Key) -> Option<SystemTime> {
        fs::symlink_metadata(self.folder.join(&key.name)).ok()?.modified().ok()
    }

    /// The verdict on GPUs of which only the UUIDs are known.
    pub fn between(&self, uuids: [&str; 2], faults: Option<&str>) -> Option<Verdict> {
        let (question, verdict) = self.answer(&mut Facts::new(), &name_of(uuids))?;
        (question.faults == faults.map(plain)).then_some(verdict)
    }

    /// All verdicts that hold.
    pub fn all(&self, facts: &mut Facts) -> Vec<(Question, Verdict)> {
        let mut names: Vec<_> =
            self.files(VERDICT).iter().filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect();
        names.sort();
        names.iter().filter_map(|name| self.answer(facts, name)).collect()
    }

    /// The question and the verdict of a file, if it holds.
    fn answer(&self, facts: &mut Facts, name: &str) -> Option<(Question, Verdict)> {
        let text = self.read(name)?;
        let question = question_of(&text)?;
        let key = facts.key(&question).filter(|key| key.name == name)?;
        let verdict = parse(&text, &key)?;
        Some((question, verdict))
    }

    fn read(&self, name: &str) -> Option<String> {
        if !self.is_ours() {
            return None;
        }
        let path = self.folder.join(name);
        // A pipe in its place would keep us waiting.
        let mut file =
            OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&path).ok()?;
        let found = file.metadata().ok()?;
        if !found.is_file() || !self.is_own(&found, 0o777 & !self.mode) || found.len() > Self::LARGEST {
            return None;
        }
        let mut bytes = Vec::with_capacity(512);
        Read::by_ref(&mut file).take(Self::LARGEST).read_to_end(&mut bytes).ok()?;
        String::from_utf8(bytes).ok()
    }

    /// Forgets all verdicts, and that GPUs were checked; returns how many verdicts there were.
    ///
    /// # Errors
    /// The system's, of a file that cannot be removed.
    pub fn forget(&self) -> io::Result<usize> {
        let verdicts = self.files(VERDICT);
        let others = [CHECKED, PUBLISHED].map(|suffix| self.files(suffix));
        verdicts.iter().chain(others.iter().flatten()).try_for_each(fs::remove_file)?;
        Ok(verdicts.len())
    }

    /// The pairs of GPUs, by UUID, on which there is a verdict.
    pub fn pairs(&self) -> Vec<[String; 2]> {
        let pair = |path: PathBuf| {
            let (from, to) = path.file_stem()?.to_str()?.split_once('_')?;
            Some([from.to_owned(), to.to_owned()])
        };
        self.files(VERDICT).into_iter().filter_map(pair).collect()
    }

    /// The files whose names end so.
    fn files(&self, suffix: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|found| found == suffix)).collect()
    }

    /// Adds a verdict to what is kept; returns whether it is kept. `is_quick` says that sizes were small.
    pub fn put(&self, key: &Key, verdict: Verdict, is_quick: bool) -> bool {
        self.try_put(key, verdict, is_quick).is_ok()
    }

    /// [`Self::put`], which says why it is not kept.
    ///
    /// # Errors
    /// The system's, with the file's name.
    pub fn try_put(&self, key: &Key, verdict: Verdict, is_quick: bool) -> io::Result<()> {
        let verdict = self.get(key).unwrap_or_default().updated(verdict, is_quick);
        let named = |error: io::Error| {
            let path = self.folder.join(&key.name);
            io::Error::new(error.kind(), format!("the verdict cannot be kept in {}: {error}", path.display()))
        };
        self.replace(&key.name, &text(key, &verdict), self.mode).map_err(named)
    }

    /// Puts a file there that all who may look into the folder can read, and removes `outdated` ones; returns whether it is there.
    pub fn publish(&self, name: &str, text: &str, outdated: impl Fn(&str) -> bool) -> bool {
        let name = format!("{name}.{PUBLISHED}");
        for path in self.files(PUBLISHED).iter().filter(|path| !path.ends_with(&name)) {
            if fs::read_to_string(path).is_ok_and(|text| outdated(&text)) {
                let _ = fs::remove_file(path);
            }
        }
        self.replace(&name, text, 0o644).is_ok()
    }

    /// Puts a file in the place of another, in whole.
    fn replace(&self, name: &str, text: &str, mode: u32) -> io::Result<()> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        self.make()?;
        if !self.is_ours() {
            return Err(io::Error::other("others can write to its folder, or it is another user's"));
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let unfinished = self.folder.join(format!(".{}.{number}", std::process::id()));
        let written =
            Self::write(&unfinished, text, mode).and_then(|()| fs::rename(&unfinished, self.folder.join(name)));
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        written
    }

    /// A file to lock while the GPUs of a key are checked; whoever gets the lock looks again whether that was done.
    ///
    /// # Errors
    /// Why nothing can be kept, for the user.
    pub fn lock_file(&self, key: &Key) -> Result<File, String> {
        let folder = self.folder.display();
        self.make().map_err(|error| format!("{folder} cannot be made: {error}"))?;
        if !self.is_ours() {
            return Err(format!("others can write to {folder}, or it is another user's"));
        }
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let name = format!(".{}.lock", key.name);
        options.open(self.folder.join(name)).map_err(|error| format!("{folder} cannot be written to: {error}"))
    }

    fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
        // A process with that number may have left it behind; numbers are used again.
        let _ = fs::remove_file(path);
        let mut options = OpenOptions::new();
        let mut file: File =
            options.write(true).create_new(true).mode(mode).custom_flags(libc::O_NOFOLLOW).open(path)?;
        // A mask of the process may have taken the right to read away.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(text.as_bytes())
    }

    /// Makes the folder, if it is not there, where all belongs to the user: root may be using another's.
    fn make(&self) -> io::Result<()> {
        if fs::symlink_metadata(&self.folder).is_ok() {
            return Ok(());
        }
        let nearest = self.folder.ancestors().skip(1).take(self.above).find(|folder| folder.exists());
        let is_own = nearest.and_then(|folder| fs::metadata(folder).ok()).is_some_and(|found| self.is_own(&found, 0));
        let mode = if self.mode == 0o644 { 0o755 } else { 0o700 };
        if !is_own {
            return Err(io::Error::other("its folder cannot be made: that above is another user's, or not there"));
        }
        DirBuilder::new().recursive(true).mode(mode).create(&self.folder)
    }

    /// Whether the folder is the user's and nobody else can put anything there.
    fn is_ours(&self) -> bool {
        fs::symlink_metadata(&self.folder).is_ok_and(|found| found.is_dir() && self.is_own(&found, 0o022))
    }

    /// Whether something belongs to the process's user and grants others nothing of this.
    fn is_own(&self, found: &fs::Metadata, forbidden: u32) -> bool {
        found.uid() == self.user && found.mode() & forbidden == 0
    }
}

/// The last line: a file without it was cut.
const END: &str = "end\n";

/// The file for a verdict.
fn text(key: &Key, verdict: &Verdict) -> String {
    format!("{}{}{END}", key.head, verdict.write())
}

/// The verdict in a file, if the file is whole and of that key.
fn parse(text: &str, key: &Key) -> Option<Verdict> {
    Verdict::parse(text.strip_prefix(&key.head)?.strip_suffix(END)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{Finding, Part};
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    /// A folder of a test's own.
    struct Folder(TempDir);

    impl Folder {
        fn new() -> Folder {
            Folder(tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o700)).tempdir().unwrap())
        }

        fn cache(&self) -> Cache {
            let user = fs::metadata(&self.0).unwrap().uid();
            Cache { folder: self.0.path().join("cache/p2pshim"), user, mode: 0o600, above: usize::MAX }
        }
    }

    fn question() -> Question {
        Question {
            from_uuid: "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6".to_owned(),
            from_bus_id: "0000:01:00.0".to_owned(),
            to_uuid: "GPU-01010101-0101-0101-0101-010101010101".to_owned(),
            to_bus_id: "0000:0a:00.0".to_owned(),
            driver_version: 13000,
            faults: None,
        }
    }

    fn place(bar1: &str, iommu: &str) -> Place {
        Place { bar1: bar1.to_owned(), iommu: iommu.to_owned() }
    }

    fn places() -> [Place; 2] {
        [place("0x100", "identity"), place("0x200", "identity")]
    }

    fn passed() -> Verdict {
        Verdict::of(Part::Copies, Finding::Right)
    }

    fn failed(text: &str) -> Verdict {
        Verdict::of(Part::Copies, Finding::Wrong(text.to_owned()))
    }

    #[test]
    fn parse_another_key_or_damage_is_no_verdict() {
        let key = key_of(&question(), "580.159.04", "boot", &places());
        let good = text(&key, &passed());
        assert_eq!(parse(&good, &key), Some(passed()));
        for length in 0..good.len() {
            assert_eq!(parse(&good[..length], &key), None, "cut to {length}");
        }
        for damaged in [format!("{good}\n"), format!("{good}loads right\n"), good.replace("right", "maybe")] {
            assert_eq!(parse(&damaged, &key), None, "{damaged}");
        }
        let moved = Question { to_bus_id: "0000:03:00.0".to_owned(), ..question() };
        let simulated = |faults: &str| Question { faults: Some(faults.to_owned()), ..question() };
        for other in [
            key_of(&question(), "580.159.05", "boot", &places()),
            key_of(&question(), "580.159.04", "b", &places()),
            key_of(&moved, "580.159.04", "boot", &places()),
            key_of(&simulated("drop:0-1;"), "580.159.04", "boot", &places()),
            key_of(&question(), "580.159.04", "boot", &[place("0x100", "identity"), place("0x200", "DMA-FQ")]),
            key_of(&question(), "580.159.04", "boot", &[place("0x100", "identity"), place("0x100", "identity")]),
        ] {
            assert_eq!(parse(&good, &other), None, "{other:?}");
        }
        let [one, other] = ["drop:0-1;", ";"].map(|faults| key_of(&simulated(faults), "-", "boot", &places()));
        assert_eq!(
            (parse(&text(&one, &passed()), &one), parse(&text(&one, &passed()), &other)),
            (Some(passed()), None)
        );
    }

    #[test]
    fn put_adds_to_what_is_kept() {
        let (folder, key) = (Folder::new(), key_of(&question(), "-", "boot", &places()));
        let cache = folder.cache();
        assert!(cache.put(&key, Verdict::of(Part::Ipc, Finding::Wrong("lost".to_owned())), false));
        assert!(cache.put(&key, passed(), true) && cache.put(&key, Verdict::default(), false));
        let both = passed().updated(Verdict::of(Part::Ipc, Finding::Wrong("lost".to_owned())), false);
        assert_eq!(cache.get(&key), Some(both));
        let later = key_of(&question(), "-", "later", &places());
        assert!(cache.put(&later, passed(), false));
        assert_eq!((cache.get(&later), cache.get(&key)), (Some(passed()), None), "another boot begins anew");
    }

    #[test]
    fn cache_folder_and_file_are_the_users_alone() {
        let (folder, key) = (Folder::new(), key_of(&question(), "-", "boot", &places()));
        let cache = folder.cache();
        assert_eq!(cache.get(&key), None);
        cache.put(&key, passed(), false);
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        let file = cache.folder.join(&key.name);
        assert_eq!((mode(&cache.folder), mode(&file)), (0o700, 0o600));
        assert_eq!(fs::read_dir(&cache.folder).unwrap().count(), 1, "nothing unfinished is left");
        assert_eq!(
            (cache.get(&key), cache.find(&mut Facts::new(), &question())),
            (Some(passed()), None),
            "of another boot"
        );
        for (path, mode) in [(&file, 0o640), (&cache.folder, 0o770)] {
            let before = fs::metadata(path).unwrap().permissions();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(cache.get(&key), None, "{} with mode {mode:o}", path.display());
            fs::set_permissions(path, before).unwrap();
        }
        assert_eq!(cache.get(&key), Some(passed()));
    }

    #[test]
    fn cache_links_and_other_things_are_not_followed() {
        let (folder, key) = (Folder::new(), key_of(&question(), "-", "boot", &places()));
        let cache = folder.cache();
        cache.put(&key, passed(), false);
        let (file, elsewhere) = (cache.folder.join(&key.name), folder.0.path().join("elsewhere"));
        fs::rename(&file, &elsewhere).unwrap();
        symlink(&elsewhere, &file).unwrap();
        assert_eq!(cache.get(&key), None);
        // A verdict replaces the link, and not what it points to.
        cache.put(&key, failed("gone"), false);
        assert!(fs::symlink_metadata(&file).unwrap().is_file());
        assert!(fs::read_to_string(&elsewhere).unwrap().ends_with("copies right\nend\n"));
        fs::remove_file(&file).unwrap();
        let fifo = CString::new(file.as_os_str().as_bytes()).unwrap();
        let made = std::process::Command::new("mkfifo").arg(std::ffi::OsStr::from_bytes(fifo.as_bytes())).status();
        assert!(made.unwrap().success());
        assert_eq!(cache.get(&key), None);
        fs::rename(&cache.folder, folder.0.path().join("real")).unwrap();
        symlink(folder.0.path().join("real"), &cache.folder).unwrap();
        cache.put(&key, passed(), false);
        assert_eq!(cache.get(&key), None);
    }

    #[test]
    fn cache_is_where_the_user_keeps_such() {
        let folder = |cache_home: Option<&str>, home: Option<&str>| {
            Cache::of(cache_home.map(OsString::from), home.map(OsString::from), 0).map(|cache| cache.folder)
        };
        assert_eq!(folder(Some("/c"), Some("/h")), Some("/c/p2pshim".into()));
        for relative in [None, Some(""), Some("c")] {
            assert_eq!(folder(relative, Some("/h")), Some("/h/.cache/p2pshim".into()));
        }
        assert_eq!(folder(None, Some("h")), None);
        assert_eq!(folder(None, None), None);
    }

    #[test]
    fn key_of_bus_addresses_in_either_case_is_the_same() {
        let upper = Question { to_bus_id: "0000:0A:00.0".to_owned(), ..question() };
        assert_eq!(key_of(&upper, "-", "boot", &places()), key_of(&question(), "-", "boot", &places()));
    }

    #[test]
    fn between_and_forget_are_about_all_that_is_kept() {
        let (folder, boot) = (Folder::new(), boot().unwrap());
        let cache = folder.cache();
        let pair = |name: &str| Question {
            from_uuid: format!("GPU-{name}"),
            faults: (name == "s").then(|| "drop:0-1;".to_owned()),
            ..question()
        };
        let nowhere = [place("-", "-"), place("-", "-")];
        let module = kernel_module().unwrap_or("-".to_owned());
        let key = |name: &str| key_of(&pair(name), &module, if name == "c" { "earlier" } else { &boot }, &nowhere);
        let between = |name: &str, faults| cache.between([&format!("GPU-{name}"), &question().to_uuid], faults);
        assert_eq!((between("a", None), cache.forget().unwrap()), (None, 0), "there is no folder");
        for (name, verdict) in [("a", passed()), ("b", failed("lost")), ("c", failed("lost")), ("s", failed("lost"))] {
            assert!(cache.put(&key(name), verdict, false));
        }
        assert_eq!((between("a", None), between("b", None)), (Some(passed()), Some(failed("lost"))));
        assert_eq!((between("c", None), between("s", None), between("a", Some(";"))), (None, None, None));
        assert_eq!(between("s", Some("drop:0-1;")), Some(failed("lost")));
        let all: Vec<String> =
            cache.all(&mut Facts::new()).into_iter().map(|(question, _)| question.from_uuid).collect();
        assert_eq!(all, ["GPU-a", "GPU-b", "GPU-s"], "those that hold");
        let checked = key_of_all(&["GPU-a".to_owned()], None, "quick").unwrap();
        assert!(cache.put(&checked, Verdict::default(), false));
        assert_eq!(cache.pairs().len(), 4);
        assert_eq!((cache.forget().unwrap(), cache.get(&key("a")), cache.get(&checked)), (4, None, None));
    }

    #[test]
    fn key_of_all_is_of_gpus_faults_and_way() {
        let key = |gpus: &[&str], faults, way| {
            key_of_all(&gpus.iter().map(ToString::to_string).collect::<Vec<_>>(), faults, way).unwrap()
        };
        let (folder, own) = (Folder::new(), key(&["GPU-a", "GPU-b"], None, "quick"));
        let cache = folder.cache();
        assert!(cache.lock_file(&own).unwrap().try_lock().is_ok() && cache.get(&own).is_none());
        assert!(cache.put(&own, Verdict::default(), false) && cache.get(&own).is_some());
        for other in
            [key(&["GPU-a"], None, "quick"), key(&["GPU-a", "GPU-b"], Some(";"), "quick"), key(&[], None, "full")]
        {
            assert_eq!(cache.get(&other), None, "{other:?}");
        }
        let theirs = Cache { user: cache.user + 1, ..folder.cache() };
        assert!(theirs.lock_file(&own).unwrap_err().contains("another user's"));
    }

    #[test]
    fn of_system_is_roots_and_read_by_all() {
        let folder = Folder::new();
        let user = fs::metadata(&folder.0).unwrap().uid();
        let cache = Cache { user, ..Cache::of_system(folder.0.path()) };
        let key = key_of(&question(), "-", "boot", &places());
        assert!(!cache.put(&key, passed(), false), "there is no /run");
        fs::create_dir(folder.0.path().join("run")).unwrap();
        assert!(cache.put(&key, passed(), false) && cache.publish("verdict-b", "{}", |_| true));
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        let file = cache.folder.join(&key.name);
        assert_eq!(
            (mode(&cache.folder), mode(&file), mode(&cache.folder.join("verdict-b.json"))),
            (0o755, 0o644, 0o644)
        );
        fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
        assert_eq!(cache.get(&key), None, "a group can write to it");
        assert_eq!(Cache { user: user + 1, ..Cache::of_system(folder.0.path()) }.get(&key), None, "not root's");
        // One of an earlier boot goes, those of other machines stay.
        assert!(
            cache.publish("verdict-c", "c", |text| text == "{}")
                && cache.publish("verdict-d", "d", |text| text == "{}")
        );
        let names: Vec<_> = cache.files(PUBLISHED).iter().map(|path| path.file_name().unwrap().to_owned()).collect();
        assert!(names.len() == 2 && !names.contains(&"verdict-b.json".into()), "{names:?}");
        cache.forget().unwrap();
        assert!(cache.files(PUBLISHED).is_empty());
    }

    #[test]
    fn together_a_failure_in_any_place_stays() {
        assert_eq!(together([]), None);
        for verdicts in [[passed(), failed("lost")], [failed("lost"), passed()]] {
            assert_eq!(together(verdicts), Some(failed("lost")));
        }
    }

    #[test]
    fn place_is_what_sysfs_says() {
        let folder = Folder::new();
        let gpu = folder.0.path().join("sys/bus/pci/devices/0000:0a:00.0");
        fs::create_dir_all(gpu.join("iommu_group")).unwrap();
        fs::write(gpu.join("resource"), "0x1 0x2 0x3\n0x4000000000 0x5fffffffff 0x14220c\n").unwrap();
        fs::write(gpu.join("iommu_group/type"), "DMA-FQ\n").unwrap();
        let read = Place::read(folder.0.path(), "0000:0A:00.0");
        assert_eq!((read.bar1.as_str(), read.iommu.as_str()), ("0x2000000000", "DMA-FQ"));
        fs::write(gpu.join("resource"), "0x1 0x2 0x0\n0x0 0x0 0x0\n").unwrap();
        assert_eq!(bar1(folder.0.path(), "0000:0a:00.0"), None, "there is no such region");
        fs::write(gpu.join("resource"), "0x1 0x2 0x0\n0x0 0xffffffffffffffff 0x0\n").unwrap();
        assert_eq!(bar1(folder.0.path(), "0000:0a:00.0"), None, "of no size that there is");
        let nowhere = Place::read(folder.0.path(), "0000:0b:00.0");
        assert_eq!((nowhere.bar1.as_str(), nowhere.iommu.as_str()), ("-", "-"));
    }

    #[test]
    fn between_a_file_under_the_name_of_another_pair_says_nothing() {
        let (folder, asked) = (Folder::new(), question());
        let cache = folder.cache();
        assert!(cache.put(&Facts::new().key(&asked).unwrap(), passed(), false));
        let [from, to] = [&*asked.from_uuid, &*asked.to_uuid];
        let between = |uuids| cache.between(uuids, asked.faults.as_deref());
        assert_eq!(between([from, to]), Some(passed()));
        fs::rename(cache.folder.join(name_of([from, to])), cache.folder.join(name_of([to, from]))).unwrap();
        assert_eq!(between([to, from]), None);
    }

    #[test]
    fn cache_of_another_user_is_not_used() {
        let (folder, key) = (Folder::new(), key_of(&question(), "-", "boot", &places()));
        let ours = folder.cache();
        assert!(ours.put(&key, passed(), false));
        let theirs = Cache { user: ours.user + 1, ..folder.cache() };
        assert!(!theirs.put(&key, failed("gone"), false) && theirs.get(&key).is_none());
        assert_eq!(ours.get(&key), Some(passed()));
    }
}
