//! Everything that is read here, damaged: options, verdicts, exports, and what a machine says of itself. Whatever they get, the readers end, and what
//! they make of it is plausible. `make fuzz INPUTS=n` tries so many of each, `make test` a few.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::config::{Config, Variable};
use crate::exports::{Exports, Gpu, Handle};
use crate::job;
use crate::machine::Machine;
use crate::stagers::{Rates, Stagers};
use crate::verdict::{Finding, Part, Speed, Verdict};

/// Numbers that look random, the same for a seed.
struct Random(u64);

impl Random {
    /// How many inputs each test tries, and where the numbers begin.
    fn new() -> (usize, Self) {
        let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
        let (inputs, seed) = (number("P2PSHIM_FUZZ").unwrap_or(2_000), number("P2PSHIM_SOAK").unwrap_or(1));
        println!("{inputs} inputs; `P2PSHIM_SOAK={seed}` repeats them");
        (inputs as usize, Self(seed))
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }

    fn one_of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }

    /// A text with a few changes: bytes, pieces that go, come twice, or come from `words`.
    fn damaged(&mut self, good: &[u8], words: &[&str]) -> Vec<u8> {
        let mut bytes = good.to_vec();
        for _ in 0..self.below(5) {
            let (from, to) = (self.below(bytes.len() + 1), self.below(bytes.len() + 1));
            let (from, to) = (from.min(to), from.max(to).min(from.min(to) + 40));
            match self.below(10) {
                0 if from < bytes.len() => bytes[from] = self.below(256) as u8,
                1 if from < bytes.len() => bytes[from] ^= 1 << self.below(8),
                2 => drop(bytes.drain(from..to)),
                3 => {
                    let piece = bytes[from..to].to_vec();
                    bytes.splice(to..to, piece);
                }
                4 => bytes.truncate(from),
                5 => {
                    let many = vec![self.below(256) as u8; self.below(300)];
                    bytes.splice(from..from, many);
                }
                6 => drop(bytes.splice(from..to, self.one_of(words).bytes())),
                _ => {
                    // A whole word.
                    let is_space = |byte: &u8| byte.is_ascii_whitespace();
                    let start = bytes[..from].iter().rposition(is_space).map_or(0, |at| at + 1);
                    let end = bytes[from..].iter().position(is_space).map_or(bytes.len(), |at| from + at);
                    bytes.splice(start..end, self.one_of(words).bytes());
                }
            }
        }
        bytes
    }
}

const NUMBERS: [&str; 14] = [
    "0",
    "-1",
    "1",
    "64",
    "255",
    "4294967295",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "nan",
    "inf",
    "-0.0",
    "0x10",
    "99999999999999999999999999",
];

/// Whether a terminal would obey anything in a text.
fn is_plain(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

#[test]
fn damaged_options_hold_or_leave_the_default_and_say_so_in_few_words() {
    let (inputs, mut random) = Random::new();
    let values = [
        "on",
        "off",
        "auto",
        "app",
        "0-1,2>3",
        "GPU-5f0123-1a:00.0",
        "500M",
        "18446744073709551615T",
        "sample",
        "all",
        "always",
        "warn,p2pshim::lookup=debug",
        "trace,[",
        "/tmp/x",
        "=",
        ",",
        "-",
        ">",
        "\u{1b}[31m",
        "é",
        " ",
    ];
    let (mut held, mut refused) = (0, 0);
    for _ in 0..inputs {
        let option = Variable::ALL[random.below(Variable::ALL.len())];
        let words: Vec<&str> = values.iter().chain(&NUMBERS).copied().collect();
        let good = random.one_of(&words).to_owned();
        let value = OsString::from_vec(random.damaged(good.as_bytes(), &words));
        let name =
            if random.below(8) == 0 { random.damaged(option.name().as_bytes(), &words) } else { option.name().into() };
        let is_named = name == option.name().as_bytes();
        let given = [(OsString::from_vec(name), value.clone())];
        let (config, warnings) = Config::read(given.into_iter());
        for warning in &warnings {
            assert!(warning.len() < 2_000, "{option:?} {value:?}: {} bytes", warning.len());
        }
        if is_named && !value.is_empty() {
            let is_held = option.check(&value).is_ok();
            assert_eq!(warnings.is_empty(), is_held, "{value:?}: {warnings:?}");
            assert!(is_held || config == Config::default(), "{value:?} is refused and holds");
            *if is_held { &mut held } else { &mut refused } += 1;
        }
        let variable = |_: &str| Some(value.clone());
        assert!(job::ranks_here(variable) > 0);
    }
    assert!(held > inputs / 20 && refused > inputs / 20, "{held} held, {refused} refused");
}

/// A verdict with something of all there is.
fn verdict() -> Verdict {
    let mut verdict = Verdict::of(Part::Copies, Finding::Right);
    for (number, part) in Part::ALL.into_iter().enumerate() {
        let text = || format!("{number} of 4096 bytes");
        verdict.set(part, [Finding::Right, Finding::Wrong(text()), Finding::Untested(text())][number % 3].clone());
    }
    for speed in Speed::ALL {
        verdict.set_speed(speed, 380.25);
    }
    let mut stagers = Stagers::default();
    for class in 0..Stagers::CLASSES {
        stagers.set(class, class % 2 == 0, Rates { driver: 18.5, shim: 25.0 });
    }
    verdict.stagers = stagers;
    verdict
}

#[test]
fn damaged_verdicts_are_none_or_plausible_and_come_back_as_they_are_written() {
    /// More than any link has, in GB/s.
    const MOST: f64 = 100_000.0;
    let (inputs, mut random) = Random::new();
    let good = verdict().write();
    assert_eq!(Verdict::parse(&good), Some(verdict()));
    let words: Vec<&str> = good.split_whitespace().chain(NUMBERS).chain(["\n", " ", "end\n", "\u{1b}[2J"]).collect();
    let mut read = 0;
    for _ in 0..inputs {
        let text = random.damaged(good.as_bytes(), &words);
        let text = String::from_utf8_lossy(&text);
        let Some(found) = Verdict::parse(&text) else { continue };
        read += 1;
        let written = found.write();
        assert!(written.len() < 20_000 && written.lines().all(is_plain), "{written}");
        assert_eq!(Verdict::parse(&written).map(|again| again.write()), Some(written), "from {text}");
        for speed in Speed::ALL {
            let is_plausible = |speed: f64| (0.0..=MOST).contains(&speed);
            assert!(found.speed(speed).is_none_or(is_plausible), "{:?} from {text}", found.speed(speed));
        }
        for rates in [true, false].map(|are_busy| found.stagers.rates(are_busy)).as_flattened().iter().flatten() {
            let are_plausible = [rates.driver, rates.shim].iter().all(|rate| (0.0..=MOST).contains(rate));
            assert!(are_plausible, "{rates:?} from {text}");
        }
    }
    assert!(read > inputs / 20 && read < inputs, "{read} of {inputs}");
}

#[test]
fn damaged_exports_name_no_gpu_that_is_none() {
    let (inputs, mut random) = Random::new();
    let folder = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o700)).tempdir().unwrap();
    let user = fs::metadata(&folder).unwrap().uid();
    let exports = || Exports::of(folder.path().to_owned(), user).unwrap();
    let handles: Vec<Handle> = (0..4).map(|number| [number + 1; 64]).collect();
    let gpu = Gpu { uuid: "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6".to_owned(), bus_id: "0000:01:00.0".to_owned() };
    for handle in &handles {
        exports().publish(handle, &gpu);
    }
    let file = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let good = fs::read(&file).unwrap();
    let (mut found, mut lost) = (0, 0);
    for _ in 0..inputs {
        fs::write(&file, random.damaged(&good, &["P2PEXP01", "GPU-", "\0", "0000:"])).unwrap();
        let mut exports = exports();
        for handle in &handles {
            match exports.find(handle) {
                None => lost += 1,
                Some(gpu) => {
                    found += 1;
                    assert!(gpu.uuid.len() <= 48 && gpu.bus_id.len() <= 16, "{gpu:?}");
                    assert!(is_plain(&gpu.uuid) && is_plain(&gpu.bus_id), "{gpu:?}");
                }
            }
        }
    }
    assert!(found > inputs / 10 && lost > inputs / 10, "{found} found, {lost} lost");
}

/// Files of a machine, with what is in them.
const FILES: [(&str, &[u8]); 9] = [
    ("proc/cpuinfo", b"processor\t: 0\nflags\t\t: fpu vme hypervisor sse\n"),
    ("proc/cmdline", b"BOOT_IMAGE=/vmlinuz iommu=pt intel_iommu=on pcie_acs_override=downstream\n"),
    ("proc/version", b"Linux version 6.1.0\n"),
    ("proc/driver/nvidia/gpus/0000:01:00.0/information", b"Model: H100\nGPU UUID: \t GPU-8932f937-d72c\n"),
    ("sys/module/nvidia/version", b"580.159.04\n"),
    ("sys/class/dmi/id/sys_vendor", b"QEMU\n"),
    ("sys/bus/pci/devices/0000:01:00.0/config", &[0x0d; 4096]),
    ("sys/bus/pci/devices/0000:01:00.0/drm/card0/card0-DP-1/status", b"connected\n"),
    (
        "dev/kmsg",
        b"6,1,5,-;DMAR: [DMA Read] Request device [01:00.0] fault addr 1\n6,2,6,-;NVRM: Xid (PCI:0000:01:00): 31, pid=1\n SUBSYSTEM=pci\n",
    ),
];

#[test]
fn damaged_accounts_of_a_machine_are_read_and_shown_as_text() {
    let (inputs, mut random) = Random::new();
    let root = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        fs::write(path, bytes).unwrap();
    };
    for (name, bytes) in FILES {
        write(name, bytes);
    }
    let ids = ["0000:01:00.0".to_owned(), "0000:02:00.0".to_owned()];
    let words: Vec<&str> = FILES
        .iter()
        .filter_map(|(_, bytes)| str::from_utf8(bytes).ok())
        .flat_map(str::split_whitespace)
        .chain(NUMBERS)
        .collect();
    for _ in 0..inputs {
        let (name, good) = FILES[random.below(FILES.len())];
        write(name, &random.damaged(good, &words));
        let machine = Machine::read(root.path(), &ids).with_log(root.path());
        let cause = machine.likely_cause([0, 1]);
        for text in machine.risk([0, 1]).iter().chain([&cause]) {
            assert!(is_plain(text) && text.len() < 20_000, "{name}: {text}");
        }
        let uuids = Machine::uuids(root.path());
        assert!(uuids.len() <= 1, "{uuids:?}");
        if random.below(4) == 0 {
            write(name, good);
        }
    }
}
