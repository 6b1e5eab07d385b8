//! Sequences of batches, graphs, captures, copies, pools and streams, drawn at random: plain and preloaded they give the same codes,
//! last errors and bytes on simulated GPUs.

use std::collections::BTreeMap;

use crate::support::Outcome;
use crate::support::sequences::{Sequences, Variables, difference};
use crate::support::soak::few_seeds;

const GRAPHS: Sequences = Sequences { case: "random_graphs" };

/// How often each kind of step was done, and succeeded: the sums of all processes.
fn counts(printed: &[String]) -> BTreeMap<&str, [u32; 2]> {
    let mut counts = BTreeMap::new();
    for line in printed.iter().flat_map(|text| text.lines()).filter_map(|line| line.strip_prefix("done: ")) {
        let (rest, succeeded) = line.strip_suffix(" succeeded").unwrap().split_once(", ").unwrap();
        let (kind, done) = rest.rsplit_once(' ').unwrap();
        let sums: &mut [u32; 2] = counts.entry(kind).or_default();
        sums[0] += done.parse::<u32>().unwrap();
        sums[1] += succeeded.parse::<u32>().unwrap();
    }
    counts
}

/// Kinds of steps, with how many of 10,000 sequences succeed, and how many are refused, or half as many at least.
const LEAST: [(&str, u32, u32); 37] = [
    ("copy", 80_000, 4_000),
    ("runtime batch", 6_000, 6_000),
    ("runtime 3D batch", 3_000, 3_000),
    ("driver batch", 3_000, 3_000),
    ("driver batch v2", 3_000, 3_000),
    ("driver 3D batch", 3_000, 3_000),
    ("driver 3D batch v2", 3_000, 3_000),
    ("1D node", 20_000, 2_000),
    ("3D node", 10_000, 0),
    ("node by driver", 10_000, 0),
    ("child node", 3_000, 500),
    ("capture", 4_000, 600),
    ("captured launch", 0, 500),
    ("runtime instantiation", 3_000, 300),
    ("runtime instantiation with flags", 3_000, 300),
    ("runtime instantiation with parameters", 3_000, 300),
    ("driver instantiation", 3_000, 150),
    ("driver instantiation with flags", 3_000, 300),
    ("driver instantiation with parameters", 3_000, 300),
    ("runtime launch", 20_000, 700),
    ("driver launch", 20_000, 700),
    ("runtime update", 5_000, 1_000),
    ("driver update", 5_000, 1_000),
    ("1D node set", 4_000, 1_000),
    ("node set", 2_000, 0),
    ("node set by driver", 2_000, 0),
    ("child set", 500, 50),
    ("graph destroyed", 20_000, 0),
    ("executable graph destroyed", 15_000, 0),
    ("enable", 8_000, 4_000),
    ("disable", 8_000, 4_000),
    ("allocate", 60_000, 0),
    ("free", 60_000, 0),
    ("pool", 5_000, 0),
    ("rights of a pool", 5_000, 0),
    ("stream", 8_000, 0),
    ("reset", 1_000, 0),
];

#[test]
fn random_graphs_are_the_same_preloaded() {
    const COUNT: u32 = 10_000;
    let printed = GRAPHS.assert_same("12", 0, COUNT, &[]);
    let share = COUNT / few_seeds(0, COUNT).1;
    let counts = counts(&printed);
    let least: BTreeMap<_, _> = LEAST.iter().map(|&(kind, succeeded, refused)| (kind, [succeeded, refused])).collect();
    assert_eq!(counts.keys().collect::<Vec<_>>(), least.keys().collect::<Vec<_>>());
    for (kind, [done, succeeded]) in &counts {
        let [least_succeeded, least_refused] = least[kind].map(|of_all| of_all / share / 2);
        let refused = done - succeeded;
        assert!(
            *succeeded >= least_succeeded && refused >= least_refused,
            "{kind}: {succeeded} succeeded, {refused} refused"
        );
    }
}

#[test]
fn random_graphs_with_each_runtime_are_the_same_preloaded() {
    for (number, flavour) in ["11", "13", "static"].into_iter().enumerate() {
        GRAPHS.assert_same(flavour, 20_000 + number as u32 * 1000, 500, &[]);
    }
}

#[test]
fn random_graphs_on_other_machines_are_the_same_preloaded() {
    let machines =
        [("P2PSIM_DEVICES", "2"), ("P2PSIM_DEVICES", "8"), ("P2PSIM_MAX_PEERS", "0"), ("P2PSIM_NO_P2P", "0-1,2>3")];
    for (number, machine) in machines.into_iter().enumerate() {
        GRAPHS.assert_same("12", 30_000 + number as u32 * 1000, 250, &[machine]);
    }
}

#[test]
fn random_graphs_with_each_option_are_the_same_preloaded() {
    let options = [
        ("P2PSHIM_ACCESS", "app"),
        ("P2PSHIM_POOLS", "app"),
        ("P2PSHIM_VERIFY", "off"),
        ("P2PSHIM_CAPTURE", "forward"),
        ("P2PSHIM_VALIDATE", "off"),
        ("P2PSHIM", "off"),
    ];
    for (number, option) in options.into_iter().enumerate() {
        GRAPHS.assert_same("12", 50_000 + number as u32 * 1000, 250, &[option]);
    }
}

/// A program that is denied peers is one on a machine without a path between them.
#[test]
fn random_graphs_with_denied_pairs_are_those_of_hardware_without_a_path() {
    let cases = [("0-1,2>3", [("P2PSHIM_DENY", "0-1,2>3")]), ("0-1,0-2,0-3,1-2,1-3,2-3", [("P2PSHIM_ACCESS", "off")])];
    for (without, denied) in cases {
        let (first, count) = few_seeds(60_000, 500);
        let plain = GRAPHS.program("13", first, count, &[("P2PSIM_NO_P2P", without)]).arg("steps").plain();
        let preloaded = GRAPHS.program("13", first, count, &denied).arg("steps").findings_apart().preloaded();
        plain.assert_success();
        preloaded.assert_success();
        assert_eq!(difference(&plain.stdout, &preloaded.stdout), None, "{denied:?}");
    }
}

/// The last step of a sequence launches what relies on access that is gone: the context is lost, as without the shim.
#[test]
fn random_graphs_that_lose_their_context_lose_it_preloaded() {
    let (first, count) = few_seeds(70_000, 50);
    for seed in first..first + count {
        let program = GRAPHS.program("12", seed, 1, &[("P2PSHIM_ACCESS", "app")]).arg("lost").findings_apart();
        let (plain, preloaded) = (program.plain(), program.preloaded());
        assert!(plain.stdout.contains("lost: 719, last 719\n"), "{}", plain.stdout);
        assert_eq!((preloaded.stdout, preloaded.status), (plain.stdout, plain.status), "{seed}");
    }
}

/// Sequences on a faulty machine.
const FAULTY: u32 = 80;

/// How many lines of a preloaded run with a fault differ from those of a plain run without, or are missing.
fn different(plain: &Outcome, fault: Variables, preloaded_too: Variables) -> usize {
    let env: Vec<_> = fault.iter().chain(preloaded_too).copied().collect();
    let preloaded = GRAPHS.program("13", 0, FAULTY, &env).findings_apart().preloaded();
    let same = plain.stdout.lines().zip(preloaded.stdout.lines()).filter(|(plain, other)| plain == other).count();
    plain.stdout.lines().count() - same
}

/// The comparison finds what it is there for: copies that are lost where only the shim makes them direct, and calls of each kind that
/// return something else.
#[test]
fn random_graphs_on_a_faulty_machine_are_found_to_differ() {
    let plain = GRAPHS.program("13", 0, FAULTY, &[]).plain();
    plain.assert_success();
    let trusted = [("P2PSHIM_VERIFY", "off")];
    assert!(different(&plain, &[("P2PSIM_FAULT", "drop:2-3")], &trusted) > 20);
    assert!(different(&plain, &[("P2PSIM_FAULT", "corrupt:2>3")], &trusted) > 20);
    let functions = [
        "cuMemcpyBatchAsync",
        "cuMemcpyBatchAsync_v2",
        "cuMemcpy3DBatchAsync",
        "cuMemcpy3DBatchAsync_v2",
        "cuGraphInstantiateWithFlags",
        "cuGraphInstantiateWithParams",
        "cuGraphInstantiate_v2",
        "cuGraphLaunch",
        "cuGraphLaunch_ptsz",
        "cuGraphExecUpdate",
        "cuGraphExecUpdate_v2",
        "cuGraphExecMemcpyNodeSetParams",
        "cuGraphExecChildGraphNodeSetParams",
        "cuGraphExecNodeSetParams",
        "cuGraphAddMemcpyNode",
        "cuStreamEndCapture",
        "cuMemPoolSetAccess",
    ];
    for function in functions {
        let fault = format!("code:{function}:46@2");
        assert!(different(&plain, &[("P2PSIM_FAULT", &fault)], &[]) > 0, "{function} is not looked at");
    }
}
