//! Everything that is read here, damaged: options, verdicts, exports, and what a machine says of itself. Whatever they get, the readers end, and what
//! they make of it is plausible. `make fuzz INPUTS=n` tries so many of each, `make test` a few.

mod inputs;

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
use crate::verdicts::{self, Cache, Facts, Question};
use inputs::{NUMBERS, each, is_plain};

#[test]
fn damaged_options_hold_or_leave_the_default_and_say_so_in_few_words() {
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
    let inputs = each(2_000, |_, random| {
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
    });
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
    let good = verdict().write();
    assert_eq!(Verdict::parse(&good), Some(verdict()));
    let words: Vec<&str> = good.split_whitespace().chain(NUMBERS).chain(["\n", " ", "end\n", "\u{1b}[2J"]).collect();
    let mut read = 0;
    let inputs = each(2_000, |_, random| {
        let text = random.damaged(good.as_bytes(), &words);
        let text = String::from_utf8_lossy(&text);
        let Some(found) = Verdict::parse(&text) else { return };
        read += 1;
        let written = found.write();
        assert!(written.len() < 20_000 && written.lines().all(is_plain), "{written}");
        assert_eq!(Verdict::parse(&written).map(|again| again.write()), Some(written), "from {text}");
        check_speeds(&found, &text);
    });
    assert!(read > inputs / 20 && read < inputs, "{read} of {inputs}");
}

/// Checks that speeds may be some.
fn check_speeds(verdict: &Verdict, text: &str) {
    /// More than any link has, in GB/s.
    const MOST: f64 = 100_000.0;
    let speeds = Speed::ALL.map(|speed| verdict.speed(speed));
    let rates = [true, false].map(|are_busy| verdict.stagers.rates(are_busy));
    let rates = rates.as_flattened().iter().flatten().flat_map(|rates| [rates.driver, rates.shim]);
    for speed in speeds.into_iter().flatten().chain(rates) {
        assert!((0.0..=MOST).contains(&speed), "{speed} from {text}");
    }
}

#[test]
fn damaged_files_of_verdicts_say_nothing_or_what_was_written_about_the_same_gpus() {
    const UUIDS: [&str; 2] = ["GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "GPU-c2e3a5a0-4b5f-4a9e-8d62-41e6ab7c0bb1"];
    let folder = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o700)).tempdir().unwrap();
    let user = fs::metadata(&folder).unwrap().uid();
    let cache = Cache::of(Some(folder.path().into()), None, user).unwrap();
    let [from_uuid, to_uuid] = UUIDS.map(str::to_owned);
    let [from_bus_id, to_bus_id] = ["0000:01:00.0", "0000:02:00.0"].map(str::to_owned);
    let question = Question { from_uuid, from_bus_id, to_uuid, to_bus_id, driver_version: 13_000, faults: None };
    let mut facts = Facts::new();
    let key = facts.key(&question).unwrap();
    assert!(cache.put(&key, verdict(), false));
    let file = fs::read_dir(cache.folder()).unwrap().next().unwrap().unwrap().path();
    let good = fs::read_to_string(&file).unwrap();
    let other = UUIDS[0].replace('8', "9");
    let words = good.split_whitespace().chain(NUMBERS).chain(["\n", " ", "end\n", "simulated ;\n", &other]);
    let words: Vec<&str> = words.collect();
    let (mut found, mut lost) = (0, 0);
    each(2_000, |_, random| {
        fs::write(&file, random.damaged(good.as_bytes(), &words)).unwrap();
        let text = || String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
        let own = cache.get(&key);
        own.iter().for_each(|verdict| check_speeds(verdict, &text()));
        *if own.is_some() { &mut found } else { &mut lost } += 1;
        let all = cache.all(&mut facts);
        all.iter().for_each(|(_, verdict)| check_speeds(verdict, &text()));
        // The driver's version may be another, of the same GPUs on the same machine.
        let is_own = |it: &Question| [&*it.from_uuid, &*it.to_uuid] == UUIDS;
        assert!(all.iter().all(|(question, _)| is_own(question)), "{:?} from {}", all[0].0, text());
        assert_eq!(cache.pairs().len(), 1);
        let between = cache.between(UUIDS, None);
        assert!(between.is_none() || all.len() == 1, "{}", text());
    });
    assert!(found > 0 && lost > 0, "{found} found, {lost} lost");
    assert_eq!(verdicts::together([verdict()]).map(|it| it.write()), Some(verdict().write()));
}

#[test]
fn damaged_exports_name_no_gpu_that_is_none() {
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
    let inputs = each(2_000, |_, random| {
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
    });
    assert!(found > inputs / 10 && lost > inputs / 10, "{found} found, {lost} lost");
}

/// Files of a machine, with what is in them.
const FILES: [(&str, &[u8]); 11] = [
    ("proc/cpuinfo", b"processor\t: 0\nflags\t\t: fpu vme hypervisor sse\n"),
    ("proc/cmdline", b"BOOT_IMAGE=/vmlinuz iommu=pt intel_iommu=on pcie_acs_override=downstream\n"),
    ("proc/version", b"Linux version 6.1.0\n"),
    ("proc/driver/nvidia/gpus/0000:01:00.0/information", b"Model: H100\nGPU UUID: \t GPU-8932f937-d72c\n"),
    ("sys/module/nvidia/version", b"580.159.04\n"),
    ("sys/class/dmi/id/sys_vendor", b"QEMU\n"),
    ("sys/bus/pci/devices/0000:01:00.0/config", &[0x0d; 4096]),
    ("sys/bus/pci/devices/0000:01:00.0/resource", b"0x0 0xffffff 0x40200\n0x1000000000 0x1fffffffff 0x14220c\n"),
    ("sys/bus/pci/devices/0000:01:00.0/iommu_group/type", b"DMA-FQ\n"),
    ("sys/bus/pci/devices/0000:01:00.0/drm/card0/card0-DP-1/status", b"connected\n"),
    (
        "dev/kmsg",
        b"6,1,5,-;DMAR: [DMA Read] Request device [01:00.0] fault addr 1\n6,2,6,-;NVRM: Xid (PCI:0000:01:00): 31, pid=1\n SUBSYSTEM=pci\n",
    ),
];

#[test]
fn damaged_accounts_of_a_machine_are_read_and_shown_as_text() {
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
    each(2_000, |_, random| {
        let (name, good) = random.one_of(&FILES);
        write(name, &random.damaged(good, &words));
        let machine = Machine::read(root.path(), &ids).with_log(root.path());
        let cause = machine.likely_cause([0, 1]);
        for text in machine.risk([0, 1]).iter().chain([&cause]) {
            assert!(is_plain(text) && text.len() < 20_000, "{name}: {text}");
        }
        let uuids = Machine::uuids(root.path());
        assert!(uuids.len() <= 1, "{uuids:?}");
        let bar1 = verdicts::bar1(root.path(), &ids[0]);
        assert!(bar1.is_none_or(|bytes| bytes.is_power_of_two()), "{bar1:?}");
        if random.below(4) == 0 {
            write(name, good);
        }
    });
}
