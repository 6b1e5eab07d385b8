//! Threads that use all of the driver at once, drawn at random: what their calls return does not depend on p2pshim, all bytes are right, also where
//! paths are broken, late or hang, and a trace has each copy.

use std::collections::BTreeMap;
use std::fs;

use crate::graphs::copied_in;
use crate::support::sequences::Variables;
use crate::support::soak::{seeds, soak};
use crate::support::{Program, scratch};

/// A name, what goes wrong, options, and a word for the program.
type Mode = (&'static str, &'static str, Variables<'static>, &'static str);

const MODES: [Mode; 15] = [
    ("defaults", "", &[], ""),
    ("trace", "", &[("P2PSHIM_TRACE", "")], ""),
    ("strict", "", &[("P2PSHIM_VALIDATE", "strict")], "right"),
    ("sample", "", &[("P2PSHIM_READBACK", "sample")], ""),
    ("staging", "", &[("P2PSHIM_ACCESS", "off"), ("P2PSHIM_STAGING", "always"), ("P2PSHIM_TRACE", "")], ""),
    ("app", "", &[("P2PSHIM_ACCESS", "app"), ("P2PSHIM_TRACE", "")], ""),
    ("timing", "", &[("P2PSHIM_GPU_TIMING", "all"), ("P2PSHIM_STACKS", "all"), ("P2PSHIM_TRACE", "")], ""),
    ("one space", "", &[("P2PSIM_ONE_SPACE", "1"), ("P2PSHIM_TRACE", "")], ""),
    ("no path", "", &[("P2PSIM_NO_P2P", "0-1"), ("P2PSHIM_READBACK", "sample"), ("P2PSHIM_TRACE", "")], ""),
    ("drop", "drop:0-1", &[("P2PSHIM_TRACE", "")], ""),
    ("corrupt", "corrupt:1>2", &[], ""),
    ("drop, warn", "drop:0-1", &[("P2PSHIM_BROKEN", "warn")], "graphless"),
    ("hang", "hang:0>1", &[], "hangs"),
    ("hang, warn", "hang:0>1", &[("P2PSHIM_BROKEN", "warn")], "hangs"),
    ("late", "stall:0>1:300ms", &[("P2PSHIM_TRACE", "")], ""),
];

/// Runs a program plain, on a machine where nothing goes wrong, and preloaded; what is wrong, if anything is.
fn compare((name, fault, variables, word): Mode, flavour: &str, seed: u32) -> Option<String> {
    let [threads, steps] = if soak().is_some() { ["16", "200"] } else { ["4", "60"] };
    let folder = scratch("traces");
    let program = Program::case(&format!("soak-{flavour}")).args(&[&seed.to_string(), threads, steps, word]);
    let program = variables.iter().fold(program.env("P2PSIM_DEVICES", "3"), |program, &(name, value)| match name {
        "P2PSHIM_TRACE" => program.env(name, folder.to_string_lossy()),
        _ => program.env(name, value),
    });
    let (plain, preloaded) = (program.plain(), program.env("P2PSIM_FAULT", fault).findings_apart().preloaded());
    let command = format!("{name}: soak-{flavour} {seed} {threads} {steps} {word}");
    for outcome in [&plain, &preloaded] {
        if outcome.status != "exit status: 0" {
            return Some(format!("{command}: {}\n{}\n{}", outcome.status, outcome.stdout, outcome.stderr));
        }
    }
    if plain.stdout != preloaded.stdout {
        return Some(format!("{command} differs:\n{}\n{}", plain.stdout, preloaded.stdout));
    }
    if !variables.iter().any(|(name, _)| *name == "P2PSHIM_TRACE") {
        return None;
    }
    // Its partners have traces of their own.
    let process = preloaded.stderr.strip_prefix("process ").unwrap();
    let is_own = |name: &str| name.contains(&format!("-{process}-"));
    let mut files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let own = files.find(|file| is_own(&file.file_name().unwrap().to_string_lossy())).unwrap();
    let mut sums: BTreeMap<(u8, u8), (u64, u64)> = BTreeMap::new();
    for ((src, dst, _), (copies, bytes)) in copied_in(&own).into_iter().filter(|((src, dst, _), _)| src != dst) {
        let sum = sums.entry((src, dst)).or_default();
        *sum = (sum.0 + copies, sum.1 + bytes);
    }
    fs::remove_dir_all(&folder).unwrap();
    let seen =
        sums.into_iter().map(|((src, dst), (copies, bytes))| format!("{src}>{dst}: {copies} copies, {bytes} bytes"));
    let (seen, made) =
        (seen.collect::<Vec<_>>(), preloaded.stdout.lines().filter(|line| line.contains('>')).collect::<Vec<_>>());
    (seen != made).then(|| format!("{command}: the trace has {seen:#?}, the program made {made:#?}"))
}

#[test]
fn all_of_the_driver_at_once_is_as_without_p2pshim() {
    let (first, count) = seeds(1, 10);
    let flavours = || ["12", "13", "static"].into_iter().cycle();
    let all = (first..first + count)
        .flat_map(|seed| MODES.into_iter().zip(flavours()).map(move |(mode, flavour)| (mode, flavour, seed)));
    let wrong: Vec<_> = all.filter_map(|(mode, flavour, seed)| compare(mode, flavour, seed)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
