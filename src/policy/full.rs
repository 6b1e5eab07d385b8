//! The full proof of a pair, by the command `p2pshim` in a process of its own, and its verdict in a cache.
//!
//! In the program's process a proof may neither load a kernel nor wait for a device: a kernel of the program may be
//! waiting for its host. Another process may, and it may hang without harm. It takes seconds, most of them to start CUDA,
//! so what it found is kept until the machine starts anew or its driver changes.

use std::ffi::{CString, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::verdicts::{self, Cache, Question, verdict_of};
use crate::os;
use crate::os::child::{self, Ended};

pub(crate) use super::verdicts::Answer;

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

impl DevicePair {
    fn for_the_cache(&self) -> Question {
        Question {
            from_uuid: uuid(self.src_uuid),
            from_bus_id: self.src_bus_id.clone(),
            to_uuid: uuid(self.dst_uuid),
            to_bus_id: self.dst_bus_id.clone(),
            driver_version: self.driver_version,
        }
    }
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
            cache: Cache::of(variable("XDG_CACHE_HOME"), variable("HOME"), os::user_id(), |write| {
                os::without_signals_of_writing(write)
            }),
            limit: LIMIT,
        }
    }

    fn prove(&self, question: &DevicePair) -> Answer {
        let known = self.cache.as_ref().zip(verdicts::key(&question.for_the_cache()));
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

/// What the command's lines and end mean; `cli/src/doctor/lines.rs` writes them.
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

/// Where the command may be: beside the library, in `bin` beside the library's folder, on the search path.
fn commands(library: Option<&Path>, path: Option<OsString>) -> Vec<PathBuf> {
    const NAME: &str = "p2pshim";
    /// Where Debian has the libraries of this architecture, in a folder of its own below `lib`.
    const DEBIAN: &str = "x86_64-linux-gnu";
    let folder = library.and_then(Path::parent);
    let bin = if folder.is_some_and(|folder| folder.ends_with(DEBIAN)) { "../../bin" } else { "../bin" };
    let beside = folder.into_iter().flat_map(|folder| [folder.join(NAME), folder.join(bin).join(NAME)]);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::DirBuilder;
    use std::os::unix::fs::DirBuilderExt;
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
            Surroundings { commands: vec![self.0.join("absent"), command], environment, cache: self.cache(), limit }
        }

        fn cache(&self) -> Option<Cache> {
            Cache::of(Some(self.0.join("cache").into()), None, os::user_id(), |write| write())
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
    fn commands_beside_the_library_come_first_and_relative_folders_never() {
        let library = Path::new("/opt/lib/libp2pshim.so.0");
        let found = commands(Some(library), Some("/bin::sbin:/usr/bin".into()));
        let expected = ["/opt/lib/p2pshim", "/opt/lib/../bin/p2pshim", "/bin/p2pshim", "/usr/bin/p2pshim"];
        assert_eq!(found, expected.map(PathBuf::from));
        let library = Path::new("/usr/lib/x86_64-linux-gnu/libp2pshim.so.0");
        assert_eq!(commands(Some(library), None)[1], Path::new("/usr/lib/x86_64-linux-gnu/../../bin/p2pshim"));
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
