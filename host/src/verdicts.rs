//! Verdicts on pairs, kept in files: `p2pshim doctor` and `p2pshim run` write them, and the shim reads them.
//!
//! A file a pair, such as
//!
//! ```text
//! p2pshim verdict 2
//! from GPU-8932f937-d72c-4106-c12f-20bd9faed9f6 0000:01:00.0
//! to GPU-c2e3a5a0-4b5f-4a9e-8d62-41e6ab7c0bb1 0000:02:00.0
//! driver 13000 580.159.04
//! boot 3e4f3ea3-7f0a-4d7b-9a39-4a0a1c3a6b2e
//! bar1 0x4000000000 0x4000000000
//! iommu identity identity
//! verdict passed
//! ```
//!
//! All but the last line is the key: a file that does not begin with exactly this says nothing.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// What a verdict is on: the device that reaches, and the one that is reached.
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
    /// What `cuDriverGetVersion` returns.
    pub driver_version: i32,
}

/// A verdict on a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Data arrived in every direction.
    Passed,
    /// It did not, or never; the text says what was seen.
    Failed(String),
}

/// What is added to what a verdict says that was seen earlier.
pub const FOUND_EARLIER: &str = " (found earlier; `p2pshim doctor` tests again)";

/// What stands after `verdict`.
fn verdict_of(text: &str) -> Option<Verdict> {
    let (word, text) = text.split_once(' ').unwrap_or((text, ""));
    Some(match word {
        "passed" => Verdict::Passed,
        "failed" => Verdict::Failed(plain(text)),
        _ => return None,
    })
}

/// A text as it may be shown: one line, not too long.
fn plain(text: &str) -> String {
    const LONGEST: usize = 1000;
    text.chars().filter(|character| !character.is_control()).take(LONGEST).collect()
}

/// What a verdict is kept by.
#[derive(Debug, PartialEq, Eq)]
pub struct Key {
    /// Name of the file.
    name: String,
    /// What the file has to begin with.
    head: String,
}

/// What verdicts depend on besides their questions, read where it is needed first: none of it changes while a process uses the GPUs.
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
            let line = |path| Some(fs::read_to_string(path).ok()?.trim().to_owned()).filter(|text| !text.is_empty());
            let module = line("/sys/module/nvidia/version").unwrap_or_else(|| "-".to_owned());
            self.machine = Some((boot()?, module));
        }
        let (boot, module) = self.machine.as_ref()?;
        let places = [&question.from_bus_id, &question.to_bus_id].map(|bus_id| {
            let place = self.places.entry(bus_id.clone());
            place.or_insert_with(|| Place::read(Path::new("/"), bus_id)).clone()
        });
        Some(key_of(question, module, boot, &places))
    }
}

/// The key under which it is kept that no verdict is missing on these GPUs, of which a process sees what `visible` says; none if it
/// is not known which GPUs there are.
pub fn key_of_all(uuids: &[String], visible: &str) -> Option<Key> {
    let (boot, is_any) = (boot()?, !uuids.is_empty());
    let head = ["p2pshim verdict 2", &uuids.join(" "), &plain(visible), &boot, ""].join("\n");
    is_any.then(|| Key { name: "all.txt".to_owned(), head })
}

/// What tells this run of the machine from others.
fn boot() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// What else a path depends on, of either GPU: it can change without a boot.
#[derive(Clone)]
struct Place {
    /// Bytes of BAR1, the window that other devices reach its memory by.
    bar1: String,
    /// What the IOMMU does to it.
    iommu: String,
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
    (end > start).then(|| end - start + 1)
}

fn key_of(question: &Question, module: &str, boot: &str, [one, other]: &[Place; 2]) -> Key {
    let Question { from_uuid, from_bus_id, to_uuid, to_bus_id, driver_version } = question;
    let (from, to) = (part_of_name(from_uuid), part_of_name(to_uuid));
    let head = [
        "p2pshim verdict 2".to_owned(),
        format!("from {from} {}", plain(from_bus_id).to_ascii_lowercase()),
        format!("to {to} {}", plain(to_bus_id).to_ascii_lowercase()),
        format!("driver {driver_version} {}", plain(module)),
        format!("boot {}", plain(boot)),
        format!("bar1 {} {}", one.bar1, other.bar1),
        format!("iommu {} {}\n", plain(&one.iommu), plain(&other.iommu)),
    ];
    Key { name: name_of(question), head: head.join("\n") }
}

/// The name of a verdict's file.
fn name_of(question: &Question) -> String {
    format!("{}_{}.txt", part_of_name(&question.from_uuid), part_of_name(&question.to_uuid))
}

/// A UUID as a part of a file's name, which it is already unless the driver writes strange ones.
fn part_of_name(uuid: &str) -> String {
    plain(uuid).replace('/', "_")
}

/// Verdicts, a file each, in a folder that only the user can write to.
pub struct Cache {
    /// Where they are.
    folder: PathBuf,
    /// Who the process runs as.
    user: u32,
}

impl Cache {
    /// No file of ours is larger, in bytes.
    const LARGEST: u64 = 8192;

    /// The cache of the user whose folders these are, if there is a place for one.
    pub fn of(cache_home: Option<OsString>, home: Option<OsString>, user: u32) -> Option<Self> {
        let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
        let base = cache_home.and_then(absolute).or_else(|| Some(home.and_then(absolute)?.join(".cache")))?;
        Some(Self { folder: base.join("p2pshim"), user })
    }

    /// Where they are kept.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What was found before. Where there is no file, nothing is asked of the system for the key.
    pub fn find(&self, facts: &mut Facts, question: &Question) -> Option<Verdict> {
        let text = self.read(&name_of(question))?;
        found_earlier(&text, &facts.key(question)?)
    }

    /// What was found before.
    pub fn get(&self, key: &Key) -> Option<Verdict> {
        found_earlier(&self.read(&key.name)?, key)
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
        if !found.is_file() || !self.is_own(&found, 0o077) || found.len() > Self::LARGEST {
            return None;
        }
        let mut bytes = Vec::with_capacity(512);
        Read::by_ref(&mut file).take(Self::LARGEST).read_to_end(&mut bytes).ok()?;
        String::from_utf8(bytes).ok()
    }

    /// The pairs of GPUs, by UUID, that failed since the machine was started.
    pub fn failed(&self) -> Vec<[String; 2]> {
        let Some(boot) = boot().filter(|_| self.is_ours()) else { return Vec::new() };
        let failed = |path: PathBuf| {
            let text = fs::read_to_string(&path).ok()?;
            let line = |word: &str| text.lines().find_map(|line| Some(line.strip_prefix(word)?.trim()));
            let uuid = |word| Some(line(word)?.split(' ').next()?.to_owned());
            let has_failed = line("verdict ").is_some_and(|verdict| verdict.starts_with("failed"));
            (has_failed && line("boot ") == Some(&boot)).then_some([uuid("from ")?, uuid("to ")?])
        };
        self.files().into_iter().filter_map(failed).collect()
    }

    /// Forgets all verdicts; returns how many there were.
    ///
    /// # Errors
    /// The system's, of a file that cannot be removed.
    pub fn forget(&self) -> io::Result<usize> {
        let files = self.files();
        files.iter().try_for_each(fs::remove_file)?;
        Ok(files.len())
    }

    /// The files of verdicts.
    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|suffix| suffix == "txt"))
            .collect()
    }

    /// Keeps a verdict; returns whether it is kept.
    pub fn put(&self, key: &Key, verdict: &Verdict) -> bool {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !self.exists() || !self.is_ours() {
            return false;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let unfinished = self.folder.join(format!(".{}.{number}", std::process::id()));
        let written = Self::write(&unfinished, &text(key, verdict))
            .and_then(|()| fs::rename(&unfinished, self.folder.join(&key.name)));
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        written.is_ok()
    }

    fn write(path: &Path, text: &str) -> io::Result<()> {
        // What a process with that number left behind; numbers are used again.
        let _ = fs::remove_file(path);
        let mut options = OpenOptions::new();
        let mut file: File =
            options.write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)?;
        file.write_all(text.as_bytes())
    }

    /// Makes the folder, if it is not there, where all belongs to the user: root may be using another's.
    fn exists(&self) -> bool {
        if fs::symlink_metadata(&self.folder).is_ok() {
            return true;
        }
        let nearest = self.folder.ancestors().skip(1).find_map(|folder| fs::metadata(folder).ok());
        nearest.is_some_and(|nearest| self.is_own(&nearest, 0))
            && DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).is_ok()
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

/// The file for a verdict.
fn text(key: &Key, verdict: &Verdict) -> String {
    match verdict {
        Verdict::Passed => format!("{}verdict passed\n", key.head),
        Verdict::Failed(text) => format!("{}verdict failed {}\n", key.head, plain(text)),
    }
}

/// What a file says, as something that was found earlier.
fn found_earlier(text: &str, key: &Key) -> Option<Verdict> {
    match parse(text, key)? {
        Verdict::Failed(text) => Some(Verdict::Failed(text + FOUND_EARLIER)),
        Verdict::Passed => Some(Verdict::Passed),
    }
}

/// What a file says, if it is whole and of that key.
fn parse(text: &str, key: &Key) -> Option<Verdict> {
    let verdict = text.strip_prefix(&key.head)?.strip_suffix('\n')?.strip_prefix("verdict ")?;
    verdict_of(verdict).filter(|_| !verdict.contains('\n'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// A folder of a test's own.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Folder {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let name = format!("p2pshim-verdicts-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let folder = std::env::temp_dir().join(name);
            DirBuilder::new().mode(0o700).create(&folder).unwrap();
            Folder(folder)
        }

        fn cache(&self) -> Cache {
            let user = fs::metadata(&self.0).unwrap().uid();
            Cache { folder: self.0.join("cache/p2pshim"), user }
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn question() -> Question {
        Question {
            from_uuid: "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6".to_owned(),
            from_bus_id: "0000:01:00.0".to_owned(),
            to_uuid: "GPU-01010101-0101-0101-0101-010101010101".to_owned(),
            to_bus_id: "0000:0a:00.0".to_owned(),
            driver_version: 13000,
        }
    }

    fn place(bar1: &str, iommu: &str) -> Place {
        Place { bar1: bar1.to_owned(), iommu: iommu.to_owned() }
    }

    fn places() -> [Place; 2] {
        [place("0x100", "identity"), place("0x200", "identity")]
    }

    fn failed(text: &str) -> Verdict {
        Verdict::Failed(text.to_owned())
    }

    #[test]
    fn verdict_of_texts_are_fit_to_be_shown() {
        assert_eq!(verdict_of("failed a\u{1b}[31mb\tc"), Some(failed("a[31mbc")));
        let Some(Verdict::Failed(long)) = verdict_of(&format!("failed {}", "ä".repeat(5000))) else { panic!() };
        assert_eq!(long.chars().count(), 1000);
        assert_eq!((verdict_of("unknown no memory"), verdict_of("maybe")), (None, None));
    }

    #[test]
    fn parse_another_key_or_damage_is_no_verdict() {
        let key = key_of(&question(), "580.159.04", "boot", &places());
        let good = text(&key, &Verdict::Passed);
        assert_eq!(parse(&good, &key), Some(Verdict::Passed));
        let longer = text(&key, &failed("kernel loads: 8 of 8 bytes\nwrong"));
        assert_eq!(parse(&longer, &key), Some(failed("kernel loads: 8 of 8 byteswrong")));
        for length in 0..good.len() {
            assert_eq!(parse(&good[..length], &key), None, "cut to {length}");
        }
        for damaged in [format!("{good}\n"), format!("{good}verdict failed\n"), good.replace("passed", "unknown x")] {
            assert_eq!(parse(&damaged, &key), None, "{damaged}");
        }
        let moved = Question { to_bus_id: "0000:03:00.0".to_owned(), ..question() };
        for other in [
            key_of(&question(), "580.159.05", "boot", &places()),
            key_of(&question(), "580.159.04", "b", &places()),
            key_of(&moved, "580.159.04", "boot", &places()),
            key_of(&question(), "580.159.04", "boot", &[place("0x100", "identity"), place("0x200", "DMA-FQ")]),
            key_of(&question(), "580.159.04", "boot", &[place("0x100", "identity"), place("0x100", "identity")]),
        ] {
            assert_eq!(parse(&good, &other), None, "{other:?}");
        }
    }

    #[test]
    fn cache_folder_and_file_are_the_users_alone() {
        let (folder, key) = (Folder::new(), key_of(&question(), "-", "boot", &places()));
        let cache = folder.cache();
        assert_eq!(cache.get(&key), None);
        cache.put(&key, &Verdict::Passed);
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        let file = cache.folder.join(&key.name);
        assert_eq!((mode(&cache.folder), mode(&file)), (0o700, 0o600));
        assert_eq!(fs::read_dir(&cache.folder).unwrap().count(), 1, "nothing unfinished is left");
        assert_eq!(
            (cache.get(&key), cache.find(&mut Facts::new(), &question())),
            (Some(Verdict::Passed), None),
            "of another boot"
        );
        for (path, mode) in [(&file, 0o640), (&cache.folder, 0o770)] {
            let before = fs::metadata(path).unwrap().permissions();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(cache.get(&key), None, "{} with mode {mode:o}", path.display());
            fs::set_permissions(path, before).unwrap();
        }
        assert_eq!(cache.get(&key), Some(Verdict::Passed));
    }

    #[test]
    fn cache_links_and_other_things_are_not_followed() {
        let (folder, key) = (Folder::new(), key_of(&question(), "-", "boot", &places()));
        let cache = folder.cache();
        cache.put(&key, &Verdict::Passed);
        let (file, elsewhere) = (cache.folder.join(&key.name), folder.0.join("elsewhere"));
        fs::rename(&file, &elsewhere).unwrap();
        symlink(&elsewhere, &file).unwrap();
        assert_eq!(cache.get(&key), None);
        // A verdict replaces the link, and not what it points to.
        cache.put(&key, &failed("gone"));
        assert!(fs::symlink_metadata(&file).unwrap().is_file());
        assert!(fs::read_to_string(&elsewhere).unwrap().ends_with("verdict passed\n"));
        fs::remove_file(&file).unwrap();
        let fifo = CString::new(file.as_os_str().as_bytes()).unwrap();
        let made = std::process::Command::new("mkfifo").arg(std::ffi::OsStr::from_bytes(fifo.as_bytes())).status();
        assert!(made.unwrap().success());
        assert_eq!(cache.get(&key), None);
        fs::rename(&cache.folder, folder.0.join("real")).unwrap();
        symlink(folder.0.join("real"), &cache.folder).unwrap();
        cache.put(&key, &Verdict::Passed);
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
    fn failed_and_forget_are_about_all_that_is_kept() {
        let (folder, boot) = (Folder::new(), boot().unwrap());
        let cache = folder.cache();
        let pair = |name: &str| Question { from_uuid: format!("GPU-{name}"), ..question() };
        let keys = ["a", "b", "c"]
            .map(|name| key_of(&pair(name), "-", if name == "c" { "earlier" } else { &boot }, &places()));
        assert_eq!((cache.failed(), cache.forget().unwrap()), (vec![], 0), "there is no folder");
        for (key, verdict) in keys.iter().zip([Verdict::Passed, failed("stores are lost"), failed("hung")]) {
            assert!(cache.put(key, &verdict));
        }
        assert_eq!(cache.failed(), [["GPU-b".to_owned(), question().to_uuid]]);
        assert_eq!((cache.forget().unwrap(), cache.get(&keys[0])), (3, None));
    }

    #[test]
    fn place_is_what_sysfs_says() {
        let folder = Folder::new();
        let gpu = folder.0.join("sys/bus/pci/devices/0000:0a:00.0");
        fs::create_dir_all(gpu.join("iommu_group")).unwrap();
        fs::write(gpu.join("resource"), "0x1 0x2 0x3\n0x4000000000 0x5fffffffff 0x14220c\n").unwrap();
        fs::write(gpu.join("iommu_group/type"), "DMA-FQ\n").unwrap();
        let read = Place::read(&folder.0, "0000:0A:00.0");
        assert_eq!((read.bar1.as_str(), read.iommu.as_str()), ("0x2000000000", "DMA-FQ"));
        fs::write(gpu.join("resource"), "0x1 0x2 0x0\n0x0 0x0 0x0\n").unwrap();
        assert_eq!(bar1(&folder.0, "0000:0a:00.0"), None, "there is no such region");
        let nowhere = Place::read(&folder.0, "0000:0b:00.0");
        assert_eq!((nowhere.bar1.as_str(), nowhere.iommu.as_str()), ("-", "-"));
    }

    #[test]
    fn cache_of_another_user_is_not_used() {
        let (folder, key) = (Folder::new(), key_of(&question(), "-", "boot", &places()));
        let ours = folder.cache();
        assert!(ours.put(&key, &Verdict::Passed));
        let theirs = Cache { user: ours.user + 1, ..folder.cache() };
        assert!(!theirs.put(&key, &failed("gone")) && theirs.get(&key).is_none());
        assert_eq!(ours.get(&key), Some(Verdict::Passed));
    }
}
