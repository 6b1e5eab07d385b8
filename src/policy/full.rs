//! The full proof of a pair, by the command `p2pshim` in a process of its own, and its verdict in a cache.
//!
//! In the program's process a proof may neither load a kernel nor wait for a device: a kernel of the program may be
//! waiting for its host. Another process may, and it may hang without harm. It takes seconds, most of them to start CUDA,
//! so what it found is kept until the machine starts anew or its driver changes.
//!
//! The cache is a file a pair, such as
//!
//! ```text
//! p2pshim proof 1
//! from GPU-8932f937-d72c-4106-c12f-20bd9faed9f6 0000:01:00.0
//! to GPU-c2e3a5a0-4b5f-4a9e-8d62-41e6ab7c0bb1 0000:02:00.0
//! driver 13000 580.159.04
//! boot 3e4f3ea3-7f0a-4d7b-9a39-4a0a1c3a6b2e
//! verdict passed
//! ```
//!
//! All but the last line is the key: a file that does not begin with exactly this says nothing.

use std::ffi::{CString, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::os;
use crate::os::child::{self, Ended};

/// A pair to prove: the device that reaches, and the one that is reached.
#[derive(Clone, Debug)]
pub(crate) struct DevicePair {
    /// UUID of the device that reaches.
    pub(crate) src_uuid: [u8; 16],
    /// UUID of the device that is reached.
    pub(crate) dst_uuid: [u8; 16],
    /// Where the one is on the PCI bus, as `cuDeviceGetPCIBusId` writes it.
    pub(crate) src_bus_id: String,
    /// Where the other is.
    pub(crate) dst_bus_id: String,
    /// What `cuDriverGetVersion` answers.
    pub(crate) driver_version: i32,
}

/// What is known of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Data arrived on every way.
    Passed,
    /// It did not, or never; the text says what was seen.
    Failed(String),
    /// It could not be tested; the text says why.
    Unknown(String),
}

/// How long the command may take.
const LIMIT: Duration = Duration::from_secs(30);
/// So much earlier it gives up by itself, since it can say where it was.
const HEAD_START: Duration = Duration::from_secs(5);

/// Proves that the one device reaches the other's memory: copies, and a kernel's loads and stores.
///
/// Takes a moment if the answer is in the cache, else seconds, and never more than [`LIMIT`] and a second; the calling
/// thread takes no signal meanwhile. Nothing of the process is changed.
pub(crate) fn prove(question: &DevicePair) -> Answer {
    os::undisturbed(|| {
        if os::is_secure_execution() {
            // Its environment, and so the command and the cache, are its user's choice.
            return Answer::Unknown("the program has more rights than its user".to_owned());
        }
        Surroundings::of_this_process().prove(question)
    })
}

/// What a proof needs besides its question.
struct Surroundings {
    /// Where the command may be, best first.
    commands: Vec<PathBuf>,
    /// The command's environment, but for the devices.
    environment: Vec<(OsString, OsString)>,
    /// Where verdicts are kept, if anywhere.
    cache: Option<Cache>,
    limit: Duration,
}

/// What the command gets of the program's environment: what leads it to the same driver and devices. Not what puts
/// something between (preloads, ours first of all; profilers), and not the devices that the program is restricted to.
/// `P2PSIM_` is for simulated GPUs.
const HANDED_ON: &[&str] =
    &["PATH=", "HOME=", "LD_LIBRARY_PATH=", "TMPDIR=", "CUDA_DEVICE_ORDER=", "CUDA_MPS_", "NVIDIA_", "P2PSIM_"];

impl Surroundings {
    fn of_this_process() -> Self {
        let environment: Vec<_> = HANDED_ON.iter().flat_map(|prefix| os::environment(prefix)).collect();
        let variable = |name: &str| os::environment(&format!("{name}=")).map(|(_, value)| value).next();
        Self {
            commands: commands(own_library().as_deref(), variable("PATH")),
            environment,
            cache: Cache::of(variable("XDG_CACHE_HOME"), variable("HOME")),
            limit: LIMIT,
        }
    }

    fn prove(&self, question: &DevicePair) -> Answer {
        let known = self.cache.as_ref().zip(key(question));
        if let Some(answer) = known.as_ref().and_then(|(cache, key)| cache.get(key)) {
            return answer;
        }
        let answer = self.ask_the_command(question);
        if let Some((cache, key)) = known {
            cache.put(&key, &answer);
        }
        answer
    }

    fn ask_the_command(&self, question: &DevicePair) -> Answer {
        let is_command =
            |path: &&PathBuf| fs::metadata(path).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0);
        let Some(command) = self.commands.iter().find(is_command) else {
            let places: Vec<_> = self.commands.iter().map(|place| place.display().to_string()).collect();
            return Answer::Unknown(format!("the command p2pshim was not found; looked for {}", places.join(", ")));
        };
        let (from, to) = (uuid(question.src_uuid), uuid(question.dst_uuid));
        let timeout = self.limit.saturating_sub(HEAD_START).as_secs().max(1).to_string();
        let arguments = ["p2pshim", "probe-worker", "--timeout", &timeout, &from, &to];
        let environment =
            self.environment.iter().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat());
        // Only these two are started, and what is compiled is not worth keeping.
        let of_ours = [format!("CUDA_VISIBLE_DEVICES={from},{to}"), "CUDA_CACHE_DISABLE=1".to_owned()];
        let environment = environment.chain(of_ours.map(String::into_bytes));
        // Neither comes with a NUL inside.
        let arguments: Vec<CString> = arguments.into_iter().filter_map(|text| CString::new(text).ok()).collect();
        let environment: Vec<CString> = environment.filter_map(|text| CString::new(text).ok()).collect();
        let Ok(path) = CString::new(command.as_os_str().as_bytes()) else {
            return Answer::Unknown("the path of the command p2pshim has a NUL".to_owned());
        };
        match child::run(&path, &arguments, &environment, self.limit) {
            Ok(finished) => answer(&String::from_utf8_lossy(&finished.output), finished.ended, self.limit),
            Err(error) => Answer::Unknown(format!("{} could not be started: {error}", command.display())),
        }
    }
}

/// What the command's lines and end mean; `cli/src/probe/lines.rs` writes them.
fn answer(output: &str, ended: Ended, limit: Duration) -> Answer {
    let stuck = match ended {
        Ended::Stuck(process) => format!("; process {process}, which tested it, cannot be ended"),
        _ => String::new(),
    };
    let verdict = output.lines().find_map(|line| line.strip_prefix("verdict "));
    if let Some(verdict) = verdict.and_then(verdict_of) {
        return match verdict {
            Answer::Failed(text) => Answer::Failed(text + &stuck),
            Answer::Unknown(text) => Answer::Unknown(text + &stuck),
            Answer::Passed => Answer::Passed,
        };
    }
    let seconds = limit.as_secs();
    Answer::Unknown(match ended {
        Ended::TimedOut | Ended::Stuck(_) => {
            // What was under way says something of the pair; what came before does not.
            let begun = output.lines().filter_map(|line| line.strip_prefix("begin ")).next_back();
            if let Some(begun) = begun {
                let test = match begun {
                    "copies" => "copy engine",
                    "loads" => "kernel loads",
                    "stores" => "kernel stores",
                    _ => "the test",
                };
                return Answer::Failed(format!("{test}: it had not ended after {seconds} s{stuck}"));
            }
            format!("CUDA had not started after {seconds} s{stuck}")
        }
        Ended::Exited(status) => format!(
            "the command p2pshim ended with status {status} and no verdict; is it of the same version as the library?"
        ),
        Ended::Killed(signal) => format!("the command p2pshim was ended by signal {signal}"),
        Ended::Interrupted => "the test was interrupted".to_owned(),
    })
}

/// What stands after `verdict`, in the command's output and in the cache.
fn verdict_of(text: &str) -> Option<Answer> {
    let (word, text) = text.split_once(' ').unwrap_or((text, ""));
    Some(match word {
        "passed" => Answer::Passed,
        "no-path" => Answer::Unknown("the driver says that there is no path".to_owned()),
        "failed" => Answer::Failed(plain(text)),
        "unknown" => Answer::Unknown(plain(text)),
        _ => return None,
    })
}

/// A text as it may be shown: one line, not too long.
fn plain(text: &str) -> String {
    const LONGEST: usize = 1000;
    text.chars().filter(|character| !character.is_control()).take(LONGEST).collect()
}

/// Where the command may be: beside the library, in `bin` beside the library's folder, on the search path.
fn commands(library: Option<&Path>, path: Option<OsString>) -> Vec<PathBuf> {
    const NAME: &str = "p2pshim";
    let folder = library.and_then(Path::parent);
    let beside = folder.into_iter().flat_map(|folder| [folder.join(NAME), folder.join("../bin").join(NAME)]);
    let path = path.unwrap_or_default();
    // A folder that depends on where the program stands may be anybody's.
    let on_path: Vec<PathBuf> =
        std::env::split_paths(&path).filter(|folder| folder.is_absolute()).map(|folder| folder.join(NAME)).collect();
    beside.chain(on_path).collect()
}

/// The file that this library was loaded from, by the kernel's account: what the dynamic linker keeps may be relative
/// to where the program stood then.
fn own_library() -> Option<PathBuf> {
    let maps = fs::read("/proc/self/maps").ok()?;
    mapped_file(&maps, prove as *const () as usize)
}

/// The file that is mapped at an address.
fn mapped_file(maps: &[u8], address: usize) -> Option<PathBuf> {
    maps.split(|&byte| byte == b'\n').find_map(|line| {
        let mut fields = line.splitn(6, |&byte| byte == b' ');
        let (start, end) = std::str::from_utf8(fields.next()?).ok()?.split_once('-')?;
        let number = |digits| usize::from_str_radix(digits, 16).ok();
        let range = number(start)?..number(end)?;
        let path = fields.nth(4)?.trim_ascii_start();
        (range.contains(&address) && path.starts_with(b"/")).then(|| OsString::from_vec(path.to_vec()).into())
    })
}

/// A UUID as `CUDA_VISIBLE_DEVICES` takes it.
fn uuid(bytes: [u8; 16]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut text = "GPU".to_owned();
    let mut rest = digits.as_str();
    for length in [8, 4, 4, 4, 12] {
        let (group, others) = rest.split_at_checked(length).unwrap_or((rest, ""));
        text.extend(["-", group]);
        rest = others;
    }
    text
}

/// What a verdict is kept by.
#[derive(Debug, PartialEq, Eq)]
struct Key {
    /// Name of the file.
    name: String,
    /// What the file has to begin with.
    head: String,
}

/// The key of a question on this machine, as it runs now; none if the system does not say when it was started.
fn key(question: &DevicePair) -> Option<Key> {
    let line = |path| Some(fs::read_to_string(path).ok()?.trim().to_owned()).filter(|text| !text.is_empty());
    let module = line("/sys/module/nvidia/version").unwrap_or_else(|| "-".to_owned());
    Some(key_of(question, &module, &line("/proc/sys/kernel/random/boot_id")?))
}

fn key_of(question: &DevicePair, module: &str, boot: &str) -> Key {
    let DevicePair { src_uuid, dst_uuid, src_bus_id, dst_bus_id, driver_version } = question;
    let (from, to) = (uuid(*src_uuid), uuid(*dst_uuid));
    let head = [
        "p2pshim proof 1".to_owned(),
        format!("from {from} {}", plain(src_bus_id)),
        format!("to {to} {}", plain(dst_bus_id)),
        format!("driver {driver_version} {}", plain(module)),
        format!("boot {}\n", plain(boot)),
    ];
    Key { name: format!("{from}_{to}.txt"), head: head.join("\n") }
}

/// Verdicts, a file each, in a folder that only the user can write to.
struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// No file of ours is larger, in bytes.
    const LARGEST: u64 = 8192;

    /// The cache of the user whose folders these are, if there is a place for one.
    fn of(cache_home: Option<OsString>, home: Option<OsString>) -> Option<Self> {
        let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
        let base = cache_home.and_then(absolute).or_else(|| Some(home.and_then(absolute)?.join(".cache")))?;
        Some(Self { folder: base.join("p2pshim") })
    }

    /// What was found before.
    fn get(&self, key: &Key) -> Option<Answer> {
        if !self.is_ours() {
            return None;
        }
        let path = self.folder.join(&key.name);
        // A pipe in its place would keep us waiting.
        let mut file =
            OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&path).ok()?;
        let found = file.metadata().ok()?;
        if !found.is_file() || !is_own(&found, 0o077) || found.len() > Self::LARGEST {
            return None;
        }
        let mut bytes = Vec::new();
        Read::by_ref(&mut file).take(Self::LARGEST).read_to_end(&mut bytes).ok()?;
        match parse(&String::from_utf8(bytes).ok()?, key)? {
            Answer::Failed(text) => {
                Some(Answer::Failed(format!("{text} (found earlier; to test again, remove {})", path.display())))
            }
            answer => Some(answer),
        }
    }

    /// Keeps what was found, if it is a verdict on the pair. That it cannot be kept is nobody's loss.
    fn put(&self, key: &Key, answer: &Answer) {
        let Some(text) = text(key, answer) else { return };
        if !self.exists() || !self.is_ours() {
            return;
        }
        let unfinished = self.folder.join(format!(".{}.{}", os::process_id(), os::thread_id()));
        let written =
            self.write(&unfinished, &text).and_then(|()| fs::rename(&unfinished, self.folder.join(&key.name)));
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
    }

    fn write(&self, path: &Path, text: &str) -> std::io::Result<()> {
        // What a process with that number left behind; numbers are used again.
        let _ = fs::remove_file(path);
        let mut options = OpenOptions::new();
        let mut file: File =
            options.write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)?;
        os::without_signals_of_writing(|| file.write_all(text.as_bytes()))
    }

    /// Makes the folder, if it is not there, where all belongs to the user: root may be using another's.
    fn exists(&self) -> bool {
        if fs::symlink_metadata(&self.folder).is_ok() {
            return true;
        }
        let nearest = self.folder.ancestors().skip(1).find_map(|folder| fs::metadata(folder).ok());
        nearest.is_some_and(|nearest| is_own(&nearest, 0))
            && DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).is_ok()
    }

    /// Whether the folder is the user's and nobody else can put anything there.
    fn is_ours(&self) -> bool {
        fs::symlink_metadata(&self.folder).is_ok_and(|found| found.is_dir() && is_own(&found, 0o022))
    }
}

/// Whether something belongs to the process's user and grants others nothing of this.
fn is_own(found: &fs::Metadata, forbidden: u32) -> bool {
    found.uid() == os::user_id() && found.mode() & forbidden == 0
}

/// The file for a verdict; none for one that says nothing of the pair.
fn text(key: &Key, answer: &Answer) -> Option<String> {
    match answer {
        Answer::Passed => Some(format!("{}verdict passed\n", key.head)),
        Answer::Failed(text) => Some(format!("{}verdict failed {}\n", key.head, plain(text))),
        Answer::Unknown(_) => None,
    }
}

/// What a file says, if it is whole and of that key.
fn parse(text: &str, key: &Key) -> Option<Answer> {
    let verdict = text.strip_prefix(&key.head)?.strip_suffix('\n')?.strip_prefix("verdict ")?;
    verdict_of(verdict).filter(|answer| !verdict.contains('\n') && !matches!(answer, Answer::Unknown(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    /// A folder of a test's own.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Folder {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let name = format!("p2pshim-full-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
            let folder = std::env::temp_dir().join(name);
            DirBuilder::new().mode(0o700).create(&folder).unwrap();
            Folder(folder)
        }

        /// A command that does what a shell script says, in place of the real one.
        fn surroundings(&self, script: &str, limit: Duration) -> Surroundings {
            let command = self.0.join("p2pshim");
            let text = format!("#!/bin/sh\necho run >>{}\n{script}\n", self.0.join("runs").display());
            // By another process: one that still has a file open for writing, or a child of it, keeps it from being run.
            let write = "printf %s \"$1\" >\"$2\" && chmod 700 \"$2\"";
            let writer = std::process::Command::new("sh").args(["-c", write, "sh", &text]).arg(&command).status();
            assert!(writer.unwrap().success());
            let environment = vec![("PATH".into(), "/usr/bin:/bin".into())];
            Surroundings {
                commands: vec![self.0.join("absent"), command],
                environment,
                cache: Some(self.cache()),
                limit,
            }
        }

        fn cache(&self) -> Cache {
            Cache { folder: self.0.join("cache/p2pshim") }
        }

        fn runs(&self) -> usize {
            fs::read_to_string(self.0.join("runs")).unwrap_or_default().lines().count()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const LONG: Duration = Duration::from_secs(20);

    fn question() -> DevicePair {
        DevicePair {
            src_uuid: *b"\x89\x32\xf9\x37\xd7\x2c\x41\x06\xc1\x2f\x20\xbd\x9f\xae\xd9\xf6",
            dst_uuid: [1; 16],
            src_bus_id: "0000:01:00.0".to_owned(),
            dst_bus_id: "0000:02:00.0".to_owned(),
            driver_version: 13000,
        }
    }

    fn failed(text: &str) -> Answer {
        Answer::Failed(text.to_owned())
    }

    fn unknown(text: &str) -> Answer {
        Answer::Unknown(text.to_owned())
    }

    #[test]
    fn prove_command_gets_the_pair_and_nothing_else() {
        let folder = Folder::new();
        let script = "echo verdict failed $* $CUDA_VISIBLE_DEVICES $CUDA_CACHE_DISABLE $(env | wc -l); exit 1";
        let answer = folder.surroundings(script, LONG).prove(&question());
        let (from, to) = ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "GPU-01010101-0101-0101-0101-010101010101");
        // PATH, the two of ours, and PWD of the shell.
        assert_eq!(answer, failed(&format!("probe-worker --timeout 15 {from} {to} {from},{to} 1 4")));
    }

    #[test]
    fn prove_verdict_is_asked_for_once() {
        for script in ["echo verdict passed", "echo verdict failed copy engine: gone; exit 1"] {
            let folder = Folder::new();
            let surroundings = folder.surroundings(script, LONG);
            let first = surroundings.prove(&question());
            let second = surroundings.prove(&question());
            match (&first, &second) {
                (Answer::Passed, Answer::Passed) => {}
                (Answer::Failed(first), Answer::Failed(second)) => {
                    assert_eq!(first, "copy engine: gone");
                    assert!(
                        second.starts_with("copy engine: gone (found earlier; to test again, remove /"),
                        "{second}"
                    );
                }
                _ => panic!("{first:?}, {second:?}"),
            }
            assert_eq!(folder.runs(), 1);
            let another = DevicePair { driver_version: 13010, ..question() };
            surroundings.prove(&another);
            assert_eq!(folder.runs(), 2, "another driver");
            surroundings.prove(&question());
            assert_eq!(folder.runs(), 3, "the file is that of the other driver by now");
        }
    }

    #[test]
    fn prove_what_could_not_be_tested_is_asked_again() {
        for (script, answer) in [
            ("echo verdict unknown cuInit answered 999; exit 2", unknown("cuInit answered 999")),
            ("echo verdict no-path", unknown("the driver says that there is no path")),
            ("kill -9 $$", unknown("the command p2pshim was ended by signal 9")),
        ] {
            let folder = Folder::new();
            let surroundings = folder.surroundings(script, LONG);
            for runs in 1..=2 {
                assert_eq!(surroundings.prove(&question()), answer);
                assert_eq!(folder.runs(), runs);
            }
        }
        let folder = Folder::new();
        let Answer::Unknown(why) = folder.surroundings("echo hello; exit 2", LONG).prove(&question()) else { panic!() };
        assert!(why.contains("status 2 and no verdict"), "{why}");
    }

    #[test]
    fn prove_hang_in_a_test_fails_and_before_any_says_nothing() {
        let second = Duration::from_secs(1);
        let folder = Folder::new();
        let hanging = folder.surroundings("echo begin copies; echo copies right; echo begin loads; sleep 30", second);
        assert_eq!(hanging.prove(&question()), failed("kernel loads: it had not ended after 1 s"));
        let folder = Folder::new();
        let starting = folder.surroundings("sleep 30", second);
        assert_eq!(starting.prove(&question()), unknown("CUDA had not started after 1 s"));
    }

    #[test]
    fn prove_command_absent_is_unknown_and_says_where_it_was_looked_for() {
        let folder = Folder::new();
        let mut surroundings = folder.surroundings("", LONG);
        surroundings.commands.truncate(1);
        let Answer::Unknown(why) = surroundings.prove(&question()) else { panic!() };
        assert!(why.contains(&format!("{}/absent", folder.0.display())), "{why}");
    }

    #[test]
    fn prove_devices_that_nobody_has_is_unknown() {
        let before = std::env::vars_os().count();
        assert!(matches!(prove(&DevicePair { src_uuid: [0xfe; 16], ..question() }), Answer::Unknown(_)));
        assert_eq!(std::env::vars_os().count(), before);
    }

    #[test]
    fn surroundings_command_gets_what_leads_to_the_driver_and_nothing_else() {
        let surroundings = Surroundings::of_this_process();
        let has = |prefix: &str| {
            surroundings.environment.iter().any(|(name, _)| name.as_bytes().starts_with(prefix.as_bytes()))
        };
        // Cargo sets both for a test.
        assert!(has("PATH") && has("LD_LIBRARY_PATH") && !has("CARGO"), "{:?}", surroundings.environment);
    }

    #[test]
    fn answer_stuck_process_is_named() {
        let said = answer("begin stores\n", Ended::Stuck(77), LONG);
        let expected = "kernel stores: it had not ended after 20 s; process 77, which tested it, cannot be ended";
        assert_eq!(said, failed(expected));
        // The verdict was out: the process hangs on its way home.
        assert_eq!(answer("verdict passed\n", Ended::Stuck(77), LONG), Answer::Passed);
        assert_eq!(answer("", Ended::Interrupted, LONG), unknown("the test was interrupted"));
    }

    #[test]
    fn verdict_of_texts_are_fit_to_be_shown() {
        assert_eq!(verdict_of("failed a\u{1b}[31mb\tc"), Some(failed("a[31mbc")));
        let Some(Answer::Unknown(long)) = verdict_of(&format!("unknown {}", "ä".repeat(5000))) else { panic!() };
        assert_eq!(long.chars().count(), 1000);
        assert_eq!(verdict_of("maybe"), None);
    }

    #[test]
    fn parse_another_key_or_damage_is_no_verdict() {
        let key = key_of(&question(), "580.159.04", "boot");
        let good = text(&key, &Answer::Passed).unwrap();
        assert_eq!(parse(&good, &key), Some(Answer::Passed));
        let longer = text(&key, &failed("kernel loads: 8 of 8 bytes\nwrong")).unwrap();
        assert_eq!(parse(&longer, &key), Some(failed("kernel loads: 8 of 8 byteswrong")));
        for length in 0..good.len() {
            assert_eq!(parse(&good[..length], &key), None, "cut to {length}");
        }
        for damaged in [format!("{good}\n"), format!("{good}verdict failed\n"), good.replace("passed", "unknown x")] {
            assert_eq!(parse(&damaged, &key), None, "{damaged}");
        }
        let moved = DevicePair { dst_bus_id: "0000:03:00.0".to_owned(), ..question() };
        for other in [
            key_of(&question(), "580.159.05", "boot"),
            key_of(&question(), "580.159.04", "b"),
            key_of(&moved, "580.159.04", "boot"),
        ] {
            assert_eq!(parse(&good, &other), None, "{other:?}");
        }
        assert_eq!(text(&key, &unknown("no memory")), None);
    }

    #[test]
    fn cache_folder_and_file_are_the_users_alone() {
        let (folder, key) = (Folder::new(), key_of(&question(), "-", "boot"));
        let cache = folder.cache();
        assert_eq!(cache.get(&key), None);
        cache.put(&key, &Answer::Passed);
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        let file = cache.folder.join(&key.name);
        assert_eq!((mode(&cache.folder), mode(&file)), (0o700, 0o600));
        assert_eq!(fs::read_dir(&cache.folder).unwrap().count(), 1, "nothing unfinished is left");
        assert_eq!(cache.get(&key), Some(Answer::Passed));
        for (path, mode) in [(&file, 0o640), (&cache.folder, 0o770)] {
            let before = fs::metadata(path).unwrap().permissions();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(cache.get(&key), None, "{} with mode {mode:o}", path.display());
            fs::set_permissions(path, before).unwrap();
        }
        assert_eq!(cache.get(&key), Some(Answer::Passed));
    }

    #[test]
    fn cache_links_and_other_things_are_not_followed() {
        let (folder, key) = (Folder::new(), key_of(&question(), "-", "boot"));
        let cache = folder.cache();
        cache.put(&key, &Answer::Passed);
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
        cache.put(&key, &Answer::Passed);
        assert_eq!(cache.get(&key), None);
    }

    #[test]
    fn cache_is_where_the_user_keeps_such() {
        let folder = |cache_home: Option<&str>, home: Option<&str>| {
            Cache::of(cache_home.map(OsString::from), home.map(OsString::from)).map(|cache| cache.folder)
        };
        assert_eq!(folder(Some("/c"), Some("/h")), Some("/c/p2pshim".into()));
        for relative in [None, Some(""), Some("c")] {
            assert_eq!(folder(relative, Some("/h")), Some("/h/.cache/p2pshim".into()));
        }
        assert_eq!(folder(None, Some("h")), None);
        assert_eq!(folder(None, None), None);
    }

    #[test]
    fn commands_beside_the_library_come_first_and_relative_folders_never() {
        let library = Path::new("/opt/lib/libp2pshim.so");
        let found = commands(Some(library), Some("/bin::sbin:/usr/bin".into()));
        let expected = ["/opt/lib/p2pshim", "/opt/lib/../bin/p2pshim", "/bin/p2pshim", "/usr/bin/p2pshim"];
        assert_eq!(found, expected.map(PathBuf::from));
        assert_eq!(commands(None, None), Vec::<PathBuf>::new());
    }

    #[test]
    fn mapped_file_by_address_whatever_its_name() {
        let maps = b"1000-2000 r--p 00000000 08:01 12   /lib/with space.so\n2000-3000 rw-p 00000000 00:00 0 \n\
            3000-4000 r-xp 00000000 00:00 0    [vdso]\nbad\n";
        assert_eq!(mapped_file(maps, 0x1fff), Some("/lib/with space.so".into()));
        for address in [0xfff, 0x2000, 0x3000, 0x4000] {
            assert_eq!(mapped_file(maps, address), None, "{address:#x}");
        }
        assert_eq!(own_library().unwrap(), std::env::current_exe().unwrap());
    }

    /// The command that was built, on simulated GPUs.
    #[test]
    fn prove_by_the_real_command_on_simulated_gpus() {
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
        let (command, driver) = (target.join("release/p2pshim"), target.join("sim/lib"));
        assert!(
            command.exists() && driver.join("libcuda.so.1").exists(),
            "run `make test`, which builds what it needs"
        );
        let uuid = |device: u8| {
            let mut uuid = *b"p2psim GPU ....\0";
            uuid[15] = device;
            uuid
        };
        let prove = |fault: &str, limit| {
            let environment = [
                ("LD_LIBRARY_PATH", driver.as_os_str()),
                ("P2PSIM_DEVICES", "4".as_ref()),
                ("P2PSIM_FAULT", fault.as_ref()),
            ];
            let environment = environment.map(|(name, value)| (name.into(), value.into())).to_vec();
            let surroundings = Surroundings { commands: vec![command.clone()], environment, cache: None, limit };
            surroundings.prove(&DevicePair { src_uuid: uuid(2), dst_uuid: uuid(3), ..question() })
        };
        assert_eq!(prove("drop:0>1,lost:3>2", LONG), Answer::Passed);
        let Answer::Failed(why) = prove("lost:2>3", LONG) else { panic!() };
        assert!(why.starts_with("kernel loads: ") && why.contains("bytes arrived as 0xff"), "{why}");
        assert_eq!(
            prove("hang:2>3", HEAD_START + Duration::from_secs(1)),
            failed("copy engine: it had not ended after 1 s")
        );
    }
}
