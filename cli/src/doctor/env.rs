//! `p2pshim doctor --env`: each use of peer access that a wrong part breaks, and its switch; in forms for shells and programs.

use std::collections::BTreeMap;
use std::io::{self, Write};

use clap::ValueEnum;
use p2pshim_host::text::Escaped;
use serde::Serialize;

use super::advice::denied;
use super::consumers::{Consumer, Switch, USES, Use};
use super::lines::{Finding, Test, Verdict};
use super::report::{OF_FULL, Row, names};

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// Lines for a shell.
    Sh,
    /// One object, by docs/schema/env.schema.json.
    Json,
    /// `NAME=value` lines, as `docker run --env-file` takes them.
    Dotenv,
    /// The output of a `TaskProlog` of Slurm.
    Slurm,
}

/// A part of the verdict, and the pairs that are meant.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct OfPairs {
    /// The part's word, such as `loads`.
    part: &'static str,
    /// Pairs such as `0>1`: GPU 0 accesses memory of GPU 1.
    pairs: String,
    #[serde(skip)]
    test: Test,
    /// It is tested on request only.
    #[serde(skip)]
    is_optional: bool,
}

/// The output of `p2pshim doctor --env=json`: one JSON object. Fields are never renamed within a version; new ones may come.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(title = "p2pshim doctor --env=json"))]
pub(super) struct Environment {
    /// The version of this format. It changes only if fields change their meaning.
    #[cfg_attr(test, schemars(extend("const" = 1)))]
    version: u32,
    /// Variables to set.
    set: BTreeMap<&'static str, String>,
    /// Variables that must not be set: any value of them switches a use on.
    unset: Vec<&'static str>,
    /// Uses of peer access.
    uses: Vec<State>,
    /// Parts of the verdict that are wrong.
    wrong: Vec<OfPairs>,
    /// Parts that are wrong of pairs on which data is wrong through the host as well. Nothing is switched off because of these: what
    /// programs use instead is wrong too.
    wrong_through_host: Vec<OfPairs>,
    /// Parts of the verdict that were not tested. Nothing is switched off because of these.
    untested: Vec<OfPairs>,
    #[serde(skip)]
    is_full: bool,
    /// The first words, if nothing was tested.
    #[serde(skip)]
    untried: Option<String>,
}

/// Whether a use of peer access may stay on.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct State {
    /// The program, by the name that `--env-for` takes.
    program: String,
    /// The use.
    name: &'static str,
    /// Whether it has to be switched off, may stay on, or that was not tested.
    #[cfg_attr(test, schemars(extend("enum" = ["off", "on", "not-tested"])))]
    state: &'static str,
    /// The parts of the verdict that decide about it: those that are wrong, or were not tested.
    because: Vec<&'static str>,
    /// An argument or setting to give the program; null if variables do it.
    argument: Option<&'static str>,
    /// An action of the user, where nothing outside of the program switches the use off; else null.
    todo: Option<&'static str>,
    /// The path that data takes instead.
    instead: &'static str,
    /// The page or file that documents the switch.
    source: &'static str,
    /// The version that brought the switch, or the oldest in which it was read.
    since: &'static str,
    #[serde(skip)]
    of: &'static Use,
}

impl Environment {
    /// The meaning of rows for these programs, or for all if none is named. `name` gives the names of GPUs.
    pub(super) fn new(rows: &[Row], is_full: bool, consumers: &[Consumer], name: impl Fn(usize) -> String) -> Self {
        let wrong = of_parts(rows, fails);
        let wrong_through_host = of_parts(rows, |row, part| row.is_wrong_through_host() && row.has_failed(part));
        let untested = of_parts(rows, lacks);
        let unknown = || wrong_through_host.iter().chain(&untested);
        let is_meant = |it: &&Use| consumers.is_empty() || consumers.contains(&it.consumer);
        let uses: Vec<State> = USES.iter().filter(is_meant).map(|it| State::new(it, &wrong, unknown())).collect();
        let mut set = BTreeMap::new();
        let mut unset = Vec::new();
        for it in uses.iter().filter(|it| it.state == "off") {
            match it.of.switch {
                Switch::Deny => {
                    let broken = |row: &&Row| Test::ALL.iter().any(|part| it.of.relies_on(*part) && fails(row, *part));
                    set.insert("P2PSHIM_DENY", denied(rows.iter().filter(broken), &name));
                }
                Switch::Set(variable, value) => {
                    // Lists of what is excluded add up.
                    let more = value.strip_prefix('^').unwrap_or_default();
                    set.entry(variable)
                        .and_modify(|known: &mut String| *known = format!("{known},{more}"))
                        .or_insert_with(|| value.to_owned());
                }
                Switch::Unset(variable) => unset.push(variable),
                Switch::Argument(_) | Switch::Nothing(_) => {}
            }
        }
        let untried = untried(rows);
        Self { version: 1, set, unset, uses, wrong, wrong_through_host, untested, is_full, untried }
    }

    /// # Errors
    /// The output could not be written.
    pub(super) fn write(&self, out: &mut impl Write, form: Form) -> io::Result<()> {
        if form == Form::Json {
            return crate::json::write_pretty(self, out);
        }
        if !self.wrong_through_host.is_empty() {
            let parts = said(&self.wrong_through_host);
            writeln!(
                out,
                "# p2pshim doctor: DATA IS WRONG directly and through the host, so no switch helps: {parts}."
            )?;
        } else if self.wrong.is_empty() {
            let found = self.untried.as_deref().unwrap_or("p2pshim doctor found nothing that has to be switched off");
            writeln!(out, "# {found}.")?;
        }
        if !self.wrong.is_empty() {
            writeln!(out, "# p2pshim doctor: peer access loses data or hangs. Wrong: {}.", said(&self.wrong))?;
        }
        let is_for_full = |it: &&OfPairs| it.is_optional && !self.is_full;
        let (for_full, untested): (Vec<&OfPairs>, Vec<&OfPairs>) = self.untested.iter().partition(is_for_full);
        for (why, parts) in [
            ("Not tested, and nothing is switched off because of it", untested),
            ("Not tested, since only p2pshim doctor --full tests it", for_full),
        ] {
            if !parts.is_empty() {
                writeln!(out, "# {why}: {}.", said(parts))?;
            }
        }
        self.uses.iter().filter(|it| it.state == "off").try_for_each(|it| self.write_use(out, form, it.of))?;
        let on = self.uses.iter().filter(|it| it.state == "on").map(|it| it.of.title()).collect::<Vec<_>>();
        if !self.wrong.is_empty() && !on.is_empty() {
            writeln!(out, "# These may stay on: {}.", on.join("; "))?;
        }
        Ok(())
    }

    fn write_use(&self, out: &mut impl Write, form: Form, it: &Use) -> io::Result<()> {
        let (title, instead) = (it.title(), it.instead);
        let variable = match it.switch {
            Switch::Argument(text) => return writeln!(out, "# {title}: start it with {text}; it then uses {instead}."),
            Switch::Nothing(text) => return writeln!(out, "# {title}: {text}; it then uses {instead}."),
            Switch::Unset(name) if form == Form::Dotenv => {
                return writeln!(out, "# {title}: {name} must not be set; it then uses {instead}.");
            }
            Switch::Deny => "P2PSHIM_DENY",
            Switch::Set(name, _) | Switch::Unset(name) => name,
        };
        writeln!(out, "# {title}: off; it then uses {instead}.")?;
        let Some(value) = self.set.get(variable) else { return writeln!(out, "unset {variable}") };
        match form {
            Form::Dotenv => writeln!(out, "{variable}={value}"),
            // Slurm takes all that follows the sign for the value.
            Form::Slurm => writeln!(out, "export {variable}={value}"),
            Form::Sh | Form::Json if value.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                writeln!(out, "export {variable}={value}")
            }
            Form::Sh | Form::Json => writeln!(out, "export {variable}='{value}'"),
        }
    }
}

impl Use {
    fn title(&self) -> String {
        format!("{}, {}", self.consumer.name(), self.name)
    }
}

impl State {
    fn new<'a>(of: &'static Use, wrong: &[OfPairs], unknown: impl Iterator<Item = &'a OfPairs>) -> Self {
        let wrong: Vec<_> = wrong.iter().filter(|it| of.relies_on(it.test)).map(|it| it.part).collect();
        let decides = |it: &&OfPairs| of.relies_on(it.test) && (!it.is_optional || of.names(it.test));
        let unknown: Vec<_> = unknown.filter(decides).map(|it| it.part).collect();
        let (state, because) = match (wrong, unknown) {
            (wrong, _) if !wrong.is_empty() => ("off", wrong),
            (_, unknown) if !unknown.is_empty() => ("not-tested", unknown),
            _ => ("on", Vec::new()),
        };
        let [argument, todo] = match of.switch {
            Switch::Argument(text) if state == "off" => [Some(text), None],
            Switch::Nothing(text) if state == "off" => [None, Some(text)],
            _ => [None; 2],
        };
        let program = of.consumer.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
        let (name, instead, source, since) = (of.name, of.instead, of.source, of.since);
        Self { program, name, state, because, argument, todo, instead, source, since, of }
    }
}

/// The first words about pairs of which nothing was tested.
fn untried(rows: &[Row]) -> Option<String> {
    let is_tried = |row: &Row| row.findings.iter().flatten().any(|finding| !matches!(finding, Finding::Untested(_)));
    let why = |row: &Row| match &row.verdict {
        Verdict::Unknown(why) => Some(format!(": {}", Escaped(why))),
        _ => None,
    };
    let with_path = || rows.iter().filter(|row| row.verdict != Verdict::NoPath);
    match (with_path().next(), with_path().any(is_tried)) {
        (_, true) => None,
        (None, _) => Some("p2pshim doctor: no two GPUs here have a path, so nothing has to be switched off".to_owned()),
        (Some(_), false) => {
            let why = with_path().find_map(why).unwrap_or_default();
            Some(format!("p2pshim doctor could test nothing, so it is not known what has to be switched off{why}"))
        }
    }
}

/// Whether a part of a pair is wrong. If a pair failed and no part of it did, all of it is wrong.
fn fails(row: &Row, part: Test) -> bool {
    let is_failure = |finding: Option<&Finding>| finding.is_some_and(Finding::is_failure);
    let is_any_known = Test::ALL.iter().any(|part| is_failure(row.finding(*part)));
    matches!(row.verdict, Verdict::Failed(_)) && (is_failure(row.finding(part)) || !is_any_known)
}

/// Whether a part of a pair with a path is not known. A link may have no atomic operations, and a pair be the only one.
fn lacks(row: &Row, part: Test) -> bool {
    let is_open = match row.finding(part) {
        None => match part {
            Test::AllPairs | Test::AllToAll | Test::AllReduce => false,
            Test::Atomics => row.finding(Test::Loads).is_none(),
            _ => true,
        },
        Some(Finding::Untested(_)) => true,
        Some(finding) => {
            finding.is_failure() && !matches!(row.verdict, Verdict::Failed(_)) && !row.is_wrong_through_host()
        }
    };
    row.verdict != Verdict::NoPath && is_open && !fails(row, part)
}

/// The parts of which that is true, with the pairs.
fn of_parts(rows: &[Row], is_meant: impl Fn(&Row, Test) -> bool) -> Vec<OfPairs> {
    let of_part = |test: Test| {
        let pairs = names(rows.iter().filter(|row| is_meant(row, test)));
        let is_optional = OF_FULL.contains(&test);
        Some(OfPairs { part: test.word(), pairs, test, is_optional }).filter(|it| !it.pairs.is_empty())
    };
    Test::ALL.into_iter().filter_map(of_part).collect()
}

/// Parts and their pairs in words; pairs that have the same parts are named once.
fn said<'a>(parts: impl IntoIterator<Item = &'a OfPairs>) -> String {
    // The names have commas themselves.
    let name = |test: Test| {
        test.name().split_once(", ").map_or_else(|| test.name().to_owned(), |(of, which)| format!("{of} ({which})"))
    };
    let mut groups: Vec<(Vec<String>, &str)> = Vec::new();
    for OfPairs { pairs, test, .. } in parts {
        match groups.iter_mut().find(|(_, known)| known == pairs) {
            Some((names, _)) => names.push(name(*test)),
            None => groups.push((vec![name(*test)], pairs)),
        }
    }
    let words = |(names, pairs): (Vec<String>, &str)| format!("{} on {pairs}", names.join(", "));
    groups.into_iter().map(words).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::super::verify::THROUGH_HOST;
    use super::*;

    /// A pair whose tests came out right but for these.
    fn row(pair: [usize; 2], wrong: &[Test], untested: &[Test]) -> Row {
        let mut row = Row::new(pair, Verdict::Passed);
        for part in [Test::Copies, Test::Pools, Test::Loads, Test::Stores, Test::Flags, Test::Ipc, Test::Vmm] {
            row.add(part, Finding::Right);
        }
        wrong.iter().for_each(|part| row.add(*part, Finding::Wrong("lost".to_owned())));
        untested.iter().for_each(|part| row.set_finding(*part, Finding::Untested("no handle".to_owned())));
        row
    }

    fn environment(rows: &[Row]) -> Environment {
        Environment::new(rows, false, &[], |ordinal| format!("GPU-{ordinal}"))
    }

    fn printed(rows: &[Row], form: Form) -> String {
        let mut out = Vec::new();
        environment(rows).write(&mut out, form).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// The variables and arguments that switch something off.
    fn switches(rows: &[Row]) -> Vec<String> {
        let found = environment(rows);
        let set = found.set.iter().map(|(name, value)| format!("{name}={value}"));
        let arguments = found.uses.iter().filter_map(|it| it.argument.map(str::to_owned));
        set.chain(found.unset.iter().map(|name| format!("-{name}"))).chain(arguments).collect()
    }

    #[test]
    fn switches_are_of_uses_that_rely_on_what_is_wrong() {
        const OF_ALL: [&str; 2] = ["NCCL_P2P_DISABLE=1", "NVSHMEM_DISABLE_P2P=1"];
        const CUSTOM: &str = "--disable-custom-all-reduce";
        let deny = "P2PSHIM_DENY=GPU-0-GPU-1";
        for (part, has, has_not) in [
            (Test::Copies, [deny, "UCX_TLS=^cuda_ipc", "-GGML_CUDA_P2P"], [CUSTOM, "NCCL_NVLS_ENABLE=0"]),
            (Test::Loads, [deny, CUSTOM, "-GGML_CUDA_P2P"], ["UCX_TLS=^cuda_ipc", "NCCL_PROTO=^LL"]),
            (Test::Flags, [deny, CUSTOM, "VLLM_ALLREDUCE_USE_SYMM_MEM=0"], ["UCX_TLS=^cuda_ipc", "-GGML_CUDA_P2P"]),
            (Test::Ipc, [CUSTOM, "UCX_TLS=^cuda_ipc", "VLLM_SKIP_P2P_CHECK=0"], [deny, "NCCL_NVLS_ENABLE=0"]),
            (
                Test::Vmm,
                ["TORCH_SYMM_MEM_DISABLE_MULTICAST=1", "UCX_TLS=^cuda_ipc", "NCCL_NVLS_ENABLE=0"],
                [deny, CUSTOM],
            ),
        ] {
            let found = switches(&[row([1, 0], &[part], &[]), row([0, 1], &[], &[])]);
            let is_there = |switch: &&str| found.iter().any(|it| it == switch);
            assert!(has.iter().chain(&OF_ALL).all(is_there), "{part:?}: {found:?}");
            assert!(!has_not.iter().any(is_there), "{part:?}: {found:?}");
        }
        let all = switches(&[row([0, 1], &[Test::AllMemory], &[])]);
        let is_switch = |it: &&Use| it.relies_on(Test::AllMemory) && !matches!(it.switch, Switch::Nothing(_));
        assert_eq!(all.len(), USES.iter().filter(is_switch).count(), "{all:?}");
    }

    #[test]
    fn protocols_of_nccl_that_are_wrong_are_excluded_together_and_nothing_else_is_switched_off() {
        for (parts, value) in
            [(&[Test::Ll][..], "^LL"), (&[Test::Ll128], "^LL128"), (&[Test::Ll, Test::Ll128], "^LL,LL128")]
        {
            let found = switches(&[row([0, 1], parts, &[])]);
            assert!(found.contains(&format!("NCCL_PROTO={value}")), "{found:?}");
            assert!(!found.iter().any(|it| it.starts_with("NCCL_P2P") || it.starts_with("P2PSHIM")), "{found:?}");
        }
        let ipc = switches(&[row([0, 1], &[Test::IpcKernels], &[])]);
        assert!(
            ipc.contains(&"--disable-custom-all-reduce".to_owned()) && !ipc.iter().any(|it| it.contains("UCX")),
            "{ipc:?}"
        );
    }

    #[test]
    fn nothing_is_switched_off_for_what_was_not_tested() {
        let rows = [row([0, 1], &[], &[Test::Ipc, Test::Flags]), Row::new([1, 0], Verdict::NoPath)];
        assert!(switches(&rows).is_empty());
        let expected = "\
# p2pshim doctor found nothing that has to be switched off.
# Not tested, and nothing is switched off because of it: kernel flags, between processes (IPC) on 0>1.
# Not tested, since only p2pshim doctor --full tests it: copies in a graph, kernel pull, kernel flags in line (LL), kernel flags in line (LL128), \
between processes (kernels), all memory on 0>1.
";
        assert_eq!(printed(&rows, Form::Sh), expected);
        // Wrong through the host too: not of the pair.
        let mut of_host = row([0, 1], &[Test::Copies], &[]);
        of_host.verdict = Verdict::Unknown(format!("{THROUGH_HOST}, 8 of 8 bytes"));
        assert!(switches(std::slice::from_ref(&of_host)).is_empty());
        let text = printed(std::slice::from_ref(&of_host), Form::Sh);
        let said = "# p2pshim doctor: DATA IS WRONG directly and through the host, so no switch helps: copies on 0>1.\n# Not tested, since ";
        assert!(text.starts_with(said) && text.lines().count() == 2, "{text}");
        let state = |rows: &[Row], program: &str| {
            let found = environment(rows);
            found.uses.iter().find(|it| it.program == program).unwrap().state
        };
        assert_eq!(
            (state(&[of_host], "ucx"), state(&rows, "ucx"), state(&rows, "ggml")),
            ("not-tested", "not-tested", "on")
        );
        let protocol = |rows: &[Row], is_full| {
            let found = Environment::new(rows, is_full, &[Consumer::Nccl], |ordinal| ordinal.to_string());
            let states = |name: &str| found.uses.iter().find(|it| it.name == name).unwrap().state;
            let mut out = Vec::new();
            found.write(&mut out, Form::Sh).unwrap();
            let text = String::from_utf8(out).unwrap();
            (states("protocol LL"), states("protocol LL128"), text.contains("stay on: NCCL, protocol LL."), text)
        };
        let usual = protocol(&[row([0, 1], &[Test::Loads], &[])], false);
        assert_eq!((usual.0, usual.1, usual.2), ("not-tested", "not-tested", false), "{}", usual.3);
        let mut without_nvlink = row([0, 1], &[Test::Loads], &[]);
        without_nvlink.add(Test::Ll, Finding::Right);
        let full = protocol(&[without_nvlink], true);
        assert_eq!((full.0, full.1, full.2), ("on", "not-tested", true), "{}", full.3);
        assert!(!full.3.contains("--full"), "{}", full.3);
        // A pair of which no more is known than that it failed.
        assert!(switches(&[Row::new([0, 1], Verdict::Failed("gone".to_owned()))]).len() > 10);
    }

    #[test]
    fn first_line_says_that_nothing_was_tested() {
        let unknown = Row::new([0, 1], Verdict::Unknown("cuMemAlloc returned 2\nrm -r x".to_owned()));
        let mut untested = Row::new([1, 0], Verdict::Passed);
        untested.set_finding(Test::Copies, Finding::Untested("no memory".to_owned()));
        let first = |rows: &[Row]| printed(rows, Form::Sh).lines().next().unwrap().to_owned();
        let no_path = || Row::new([0, 1], Verdict::NoPath);
        let expected = "# p2pshim doctor could test nothing, so it is not known what has to be switched off";
        let unknown = [unknown, no_path()];
        assert!(first(&unknown).starts_with(&format!("{expected}: cuMemAlloc returned 2")));
        assert!(printed(&unknown, Form::Sh).lines().all(|line| line.starts_with('#')));
        assert_eq!(first(std::slice::from_ref(&untested)), format!("{expected}."));
        for rows in [&[][..], &[no_path()]] {
            let expected = "# p2pshim doctor: no two GPUs here have a path, so nothing has to be switched off.";
            assert_eq!(first(rows), expected);
        }
        untested.add(Test::Loads, Finding::Right);
        assert_eq!(first(&[untested]), "# p2pshim doctor found nothing that has to be switched off.");
        assert!(first(&[Row::new([0, 1], Verdict::Failed("gone".to_owned()))]).contains("loses data or hangs"));
    }

    #[test]
    fn forms_are_those_of_their_readers() {
        let rows = [row([1, 0], &[Test::Loads, Test::Copies], &[])];
        let [sh, dotenv, slurm, json] =
            [Form::Sh, Form::Dotenv, Form::Slurm, Form::Json].map(|form| printed(&rows, form));
        let lines = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
        };
        let has = |text: &str, line: &str| lines(text).iter().any(|it| it == line);
        assert!(
            sh.starts_with("# p2pshim doctor: peer access loses data or hangs. Wrong: copies, kernel loads on 1>0.\n")
        );
        for line in ["export P2PSHIM_DENY='GPU-0-GPU-1'", "export UCX_TLS='^cuda_ipc'", "unset GGML_CUDA_P2P"] {
            assert!(has(&sh, line), "no {line}: {sh}");
        }
        assert!(
            sh.contains("# vLLM, custom all-reduce: start it with --disable-custom-all-reduce; it then uses NCCL.\n"),
            "{sh}"
        );
        for line in ["export UCX_TLS=^cuda_ipc", "unset GGML_CUDA_P2P"] {
            assert!(has(&slurm, line), "no {line}: {slurm}");
        }
        assert!(has(&dotenv, "UCX_TLS=^cuda_ipc") && lines(&dotenv).iter().all(|line| line.contains('=')), "{dotenv}");
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&json["version"], &json["set"]["NCCL_P2P_DISABLE"]), (&1.into(), &"1".into()));
        assert_eq!(json["wrong"][1], serde_json::json!({"part": "loads", "pairs": "1>0"}));
        let ipc = printed(&[row([0, 1], &[Test::Ipc], &[])], Form::Sh);
        assert!(ipc.contains("# These may stay on: programs under p2pshim, direct copies"), "{ipc}");
        let only = Environment::new(&rows, false, &[Consumer::Ucx], |ordinal| ordinal.to_string());
        assert_eq!((only.set.len(), only.uses.len()), (1, 1));
    }

    #[test]
    fn json_schema_is_that_of_the_environment() {
        crate::schema::compare::<Environment>("env");
    }
}
