//! Options: one row each, read once from the environment.
//!
//! # How to add an option
//! Add a row to `OPTIONS` and a field to [`Config`] that [`Config::read`] fills. Names, defaults and
//! help in `p2pshim options`, the arguments of `p2pshim run` and docs/OPTIONS.md (`make header`) follow.

pub mod given;

use std::ffi::{OsStr, OsString};

/// What every option's name begins with.
pub const PREFIX: &str = "P2PSHIM";

/// One environment variable.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// The variable's name, with a terminating NUL for C.
    name: &'static str,
    /// The accepted values, or what kind of value it is.
    values: Values,
    /// What holds when it is not set.
    default: &'static str,
    /// What it does, in a sentence or two.
    help: &'static str,
    /// What else docs/OPTIONS.md says of it, in Markdown. Only the command reads it, so there is no NUL.
    details: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Values {
    /// Exactly one of these words.
    Words(&'static str),
    /// Anything; the text says what.
    Free(&'static str),
}

/// All options. The texts end in NUL so that they can be handed to C as they are.
const OPTIONS: &[Variable] = &[
    Variable {
        name: "P2PSHIM\0",
        values: Values::Words("on|off\0"),
        default: "on\0",
        help: "off: every hook hands out or calls the real function and does nothing else\0",
        details: "",
    },
    Variable {
        name: "P2PSHIM_ACCESS\0",
        values: Values::Words("auto|app|off\0"),
        default: "auto\0",
        help: "auto: peer access is verified and enabled for pairs that copy; app: only what the program enables itself; off: peer access is hidden from the program, and copies go through the host\0",
        details: "`off` hides peer access like this: `cudaDeviceCanAccessPeer` says 0, enabling answers 217 and disabling 705, the P2P attributes 2 to 5 say 0; granting a pool or mapped memory to another device answers 101; copies work, through the host. With `app` nothing is verified either. [HIP](HIP.md) has its own ways.",
    },
    Variable {
        name: "P2PSHIM_DENY\0",
        values: Values::Free("pairs of devices such as 0-1,2>3\0"),
        default: "\0",
        help: "pairs for which P2PSHIM_ACCESS=off holds: 0-1 both ways, 2>3 the access of device 2 to memory of device 3\0",
        details: "Ordinals are those that the program counts by. In `2>3` device 2 is the one that reaches (quote it: `>` is the shell's). The shim then enables neither direction; a program that enables 3>2 itself still copies directly between the two, so to keep all copies off a pair write `2-3`.",
    },
    Variable {
        name: "P2PSHIM_PROBE\0",
        values: Values::Words("quick|full|off\0"),
        default: "quick\0",
        help: "how a pair is verified before it is trusted; quick: data is copied and compared; full: by the verdict of p2pshim doctor as well, for which kernels load and store; off: not at all\0",
        details: "Some machines lose only what kernels load and store. `p2pshim doctor` finds that, and keeps its verdicts in `$XDG_CACHE_HOME/p2pshim`, else `~/.cache/p2pshim`, until the next boot. With `full` a pair that failed there is not used. `p2pshim run` makes the verdicts that are missing before it starts the program (some 0.9 s a direction on H200). Without one, a pair is verified as with `quick`, and a line says so.",
    },
    Variable {
        name: "P2PSHIM_POOLS\0",
        values: Values::Words("auto|app\0"),
        default: "auto\0",
        help: "auto: a memory pool seen in a copy between devices is made accessible to the other device; app: only what the program grants itself\0",
        details: "A pool is verified by a proof of its own before it is made accessible.",
    },
    Variable {
        name: "P2PSHIM_CAPTURE\0",
        values: Values::Words("rewrite|forward\0"),
        default: "rewrite\0",
        help: "rewrite: a peer copy on a capturing stream, which CUDA refuses, becomes the equal copy that it can capture\0",
        details: "Copies with arrays or host memory have no equal and are forwarded. Contexts are not looked at, as the pointers decide.",
    },
    Variable {
        name: "P2PSHIM_VALIDATE\0",
        values: Values::Words("warn|strict|off\0"),
        default: "warn\0",
        help: "warn: says what is wrong with peer calls, and what their errors mean (p2pshim explain); strict: also answers documented errors that the real library overlooks; off: neither\0",
        details: "A finding is said in full once a place in the program, after the call; answers stay as they are. `strict`: where CUDA's documentation defines an error, the program gets it, also where the real library accepts the call in silence or crashes. All findings: [MESSAGES.md](MESSAGES.md).",
    },
    Variable {
        name: "P2PSHIM_LOG\0",
        values: Values::Free(
            "off|error|warn|info|debug|trace, or an env_logger filter such as warn,p2pshim::lookup=debug\0",
        ),
        default: "warn\0",
        help: "what is written to standard error; trace is one line for each intercepted call\0",
        details: "The filter is that of [env_logger](https://docs.rs/env_logger). Targets: `p2pshim::call` (at `trace`: each call), `p2pshim::finding`, `p2pshim::lookup` (at `debug`: what look-ups found), `p2pshim::policy` (at `info`: what was done about a call). How to read the lines: [LOG_LINES.md](LOG_LINES.md).",
    },
    Variable {
        name: "P2PSHIM_LOG_FILE\0",
        values: Values::Free("path\0"),
        default: "\0",
        help: "append the log to this file (created with mode 0600) instead of standard error\0",
        details: "A file that cannot be opened, or is a symbolic link, is warned of, and standard error is used. A program with more rights than its user ignores the option.",
    },
    Variable {
        name: "P2PSHIM_TRACE\0",
        values: Values::Free("folder\0"),
        default: "\0",
        help: "keep a record of each intercepted call in a file of this folder, one a process, for p2pshim report\0",
        details: "A record costs [some 50 ns](results/trace-cost-2026-11-21.md) and is in the file when the call returns. What the files hold: [TRACE_FORMAT.md](TRACE_FORMAT.md).",
    },
    Variable {
        name: "P2PSHIM_TRACE_LIMIT\0",
        values: Values::Free("bytes such as 500M, with K, M, G or T for powers of 1024\0"),
        default: "1G\0",
        help: "how large the file of a process may become; further calls are only counted\0",
        details: "",
    },
    Variable {
        name: "P2PSHIM_GPU_TIMING\0",
        values: Values::Words("sample|all|off\0"),
        default: "sample\0",
        help: "whether a trace tells how long GPUs take for copies on streams; sample: of as many as cost the program less than a twentieth more; all: of each; off: of none\0",
        details: "Only while a trace is kept. Events are put before and after the copy; copies that are not asynchronous, or on the legacy default stream, have none.",
    },
    Variable {
        name: "P2PSHIM_SUMMARY\0",
        values: Values::Words("off|on\0"),
        default: "off\0",
        help: "on: a table of pairs, functions and findings on standard error when the program ends by returning from main or by exit\0",
        details: "No trace is needed for it.",
    },
];

impl Variable {
    /// All options, in the order of the documents.
    pub const ALL: &[Self] = OPTIONS;

    /// The name, as C text.
    pub fn c_name(self) -> &'static str {
        self.name
    }

    /// The accepted values, as C text.
    pub fn c_values(self) -> &'static str {
        match self.values {
            Values::Words(values) | Values::Free(values) => values,
        }
    }

    /// The default, as C text; empty if there is none.
    pub fn c_default(self) -> &'static str {
        self.default
    }

    /// The help, as C text.
    pub fn c_help(self) -> &'static str {
        self.help
    }

    /// What else there is to say, in Markdown; mostly empty.
    #[allow(dead_code, reason = "the command reads it, for docs/OPTIONS.md")]
    pub fn details(self) -> &'static str {
        self.details
    }

    /// The name.
    pub fn name(self) -> &'static str {
        self.name.trim_end_matches('\0')
    }

    /// The option of that name.
    pub fn named(name: &str) -> Option<Self> {
        OPTIONS.iter().copied().find(|option| option.name.trim_end_matches('\0') == name)
    }
}

/// Who decides about peer access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The shim: verified, for pairs that copy.
    Auto,
    /// The program.
    App,
    /// Nobody gets any.
    Off,
}

/// How a pair is verified before it is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// By copies.
    Quick,
    /// By copies, and by the verdict that the command has left.
    Full,
    /// Not at all.
    Off,
}

/// What is done about calls whose arguments are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validate {
    /// It is said.
    Warn,
    /// It is said, and they get the documented error.
    Strict,
    /// Nothing.
    Off,
}

/// Of which copies it is measured how long GPUs take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GpuTiming {
    /// Of as many as cost little.
    Sample,
    /// Of each.
    All,
    /// Of none.
    Off,
}

/// One device's access to the memory of another, by ordinals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The device that would reach.
    pub device: i32,
    /// The device whose memory it would be.
    pub peer: i32,
}

/// The options as they hold for this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `P2PSHIM`: whether anything but forwarding happens.
    pub on: bool,
    /// `P2PSHIM_ACCESS`: who decides about peer access.
    pub access: Access,
    /// `P2PSHIM_DENY`: pairs whose peer access is hidden.
    pub denied: Vec<Denied>,
    /// `P2PSHIM_PROBE`: how a pair is verified.
    pub probe: Probe,
    /// `P2PSHIM_POOLS`: whether memory pools are made accessible.
    pub grants_pools: bool,
    /// `P2PSHIM_CAPTURE`: whether peer copies on capturing streams are replaced.
    pub rewrites_captured: bool,
    /// `P2PSHIM_VALIDATE`: what is done about calls whose arguments are wrong.
    pub validate: Validate,
    /// `P2PSHIM_LOG`: an env_logger filter.
    pub log: String,
    /// `P2PSHIM_LOG_FILE`.
    pub log_file: Option<OsString>,
    /// `P2PSHIM_TRACE`: where calls are recorded.
    pub trace: Option<OsString>,
    /// `P2PSHIM_TRACE_LIMIT`: bytes that a file of records may have.
    pub trace_limit: u64,
    /// `P2PSHIM_GPU_TIMING`: of which copies it is measured how long GPUs take.
    pub gpu_timing: GpuTiming,
    /// `P2PSHIM_SUMMARY`: whether a table is written when the program ends.
    pub summary: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            on: true,
            access: Access::Auto,
            denied: Vec::new(),
            probe: Probe::Quick,
            grants_pools: true,
            rewrites_captured: true,
            validate: Validate::Warn,
            log: "warn".to_owned(),
            log_file: None,
            trace: None,
            trace_limit: 1 << 30,
            gpu_timing: GpuTiming::Sample,
            summary: false,
        }
    }
}

impl Config {
    /// Reads the options out of `environment`, and says what it could not use.
    ///
    /// Variables without our prefix are left alone. An unknown name or value has no effect but its
    /// warning; an empty value counts as not set.
    pub fn read(environment: impl Iterator<Item = (OsString, OsString)>) -> (Self, Vec<String>) {
        let mut config = Self::default();
        let mut warnings = Vec::new();
        for (name, value) in environment {
            let Some(name) = name.to_str().filter(|name| is_ours(name)) else { continue };
            let Some(option) = Variable::named(name) else {
                let nearest = nearest(name, OPTIONS.iter().map(|option| option.name.trim_end_matches('\0')));
                warnings.push(format!("{name}: no such option; did you mean {nearest}? It has no effect"));
                continue;
            };
            if value.is_empty() {
                continue;
            }
            // Paths need not be text.
            match name {
                "P2PSHIM_LOG_FILE" => config.log_file = Some(value),
                "P2PSHIM_TRACE" => config.trace = Some(value),
                _ => config.take(name, option, &value, &mut warnings),
            }
        }
        (config, warnings)
    }

    /// Takes over the value of an option that is text.
    fn take(&mut self, name: &str, option: Variable, value: &OsStr, warnings: &mut Vec<String>) {
        let Some(value) = value.to_str() else {
            warnings.push(format!("{name}: the value is not UTF-8; the default holds: {}", option.shown_default()));
            return;
        };
        if let Err(warning) = option.check(value) {
            warnings.push(warning);
            return;
        }
        match name {
            "P2PSHIM" => self.on = value == "on",
            "P2PSHIM_ACCESS" => {
                self.access = match value {
                    "app" => Access::App,
                    "off" => Access::Off,
                    _ => Access::Auto,
                };
            }
            "P2PSHIM_DENY" => self.denied = parse_pairs(value).unwrap_or_default(),
            "P2PSHIM_PROBE" => {
                self.probe = match value {
                    "full" => Probe::Full,
                    "off" => Probe::Off,
                    _ => Probe::Quick,
                };
            }
            "P2PSHIM_POOLS" => self.grants_pools = value == "auto",
            "P2PSHIM_CAPTURE" => self.rewrites_captured = value == "rewrite",
            "P2PSHIM_VALIDATE" => {
                self.validate = match value {
                    "strict" => Validate::Strict,
                    "off" => Validate::Off,
                    _ => Validate::Warn,
                };
            }
            "P2PSHIM_LOG" => self.log = value.to_owned(),
            "P2PSHIM_SUMMARY" => self.summary = value == "on",
            "P2PSHIM_GPU_TIMING" => {
                self.gpu_timing = match value {
                    "all" => GpuTiming::All,
                    "off" => GpuTiming::Off,
                    _ => GpuTiming::Sample,
                };
            }
            "P2PSHIM_TRACE_LIMIT" => self.trace_limit = parse_size(value).unwrap_or(self.trace_limit),
            _ => {}
        }
    }
}

impl Variable {
    fn shown_default(self) -> &'static str {
        self.default.trim_end_matches('\0')
    }

    /// # Errors
    /// A sentence that names the value and the nearest valid one.
    pub fn check(self, value: &str) -> Result<(), String> {
        let name = self.name();
        let default = self.shown_default();
        match self.values {
            Values::Words(words) => {
                let words = || words.trim_end_matches('\0').split('|');
                if words().any(|word| word == value) {
                    return Ok(());
                }
                let nearest = meant(value, words, default);
                Err(format!("{name}={value:?}: no such value; did you mean {nearest}? The default holds: {default}"))
            }
            Values::Free(_) if name == "P2PSHIM_LOG" => check_filter(value).map_err(|why| {
                format!("{name}={value:?}: {why}; did you mean {}? The default holds: {default}", {
                    nearest(value, LEVELS.iter().copied())
                })
            }),
            Values::Free(_) if name == "P2PSHIM_DENY" => parse_pairs(value).map(drop).map_err(|item| {
                format!(
                    "{name}={value:?}: `{item}` is no pair of devices; write 0-1 (both ways) or 0>1. Nothing is denied"
                )
            }),
            Values::Free(_) if name == "P2PSHIM_TRACE_LIMIT" && parse_size(value).is_none() => Err(format!(
                "{name}={value:?}: no size; write bytes, such as 500M (K, M, G and T are powers of 1024). The default \
                 holds: {default}"
            )),
            Values::Free(_) => Ok(()),
        }
    }
}

/// Reads `0-1,2>3`.
///
/// # Errors
/// The item that is no pair.
fn parse_pairs(text: &str) -> Result<Vec<Denied>, &str> {
    let mut pairs = Vec::new();
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let both_ways = item.split_once('-');
        let (device, peer) = both_ways.or(item.split_once('>')).ok_or(item)?;
        let ordinal = |text: &str| text.trim().parse::<u16>().map(i32::from).map_err(|_| item);
        let (device, peer) = (ordinal(device)?, ordinal(peer)?);
        if device == peer {
            return Err(item);
        }
        pairs.push(Denied { device, peer });
        pairs.extend(both_ways.map(|_| Denied { device: peer, peer: device }));
    }
    Ok(pairs)
}

/// Reads `500M`: bytes, with a power of 1024.
fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|last: char| !last.is_ascii_digit());
    let unit = text.strip_prefix(digits)?.trim().to_ascii_uppercase();
    let power = match unit.trim_end_matches('B').trim_end_matches('I') {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << (10 * power))
}

/// What lines of the log are filtered by.
const TARGETS: &[&str] = &["p2pshim", "p2pshim::call", "p2pshim::finding", "p2pshim::lookup", "p2pshim::policy"];

const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

/// # Errors
/// Why `filter` is none. A bare word that is no level would be taken for a module's name and
/// silence everything else, so it is refused unless it names one of ours.
fn check_filter(filter: &str) -> Result<(), String> {
    env_filter::Builder::new().try_parse(filter).map_err(|error| error.to_string())?;
    for directive in filter.split('/').next().unwrap_or_default().split(',') {
        let directive = directive.trim();
        let target = directive.split('=').next().unwrap_or_default();
        let is_level = LEVELS.iter().any(|level| level.eq_ignore_ascii_case(directive));
        if !directive.is_empty() && !is_level && !TARGETS.contains(&target) {
            return Err(format!("`{directive}` is neither a level nor one of the targets {}", TARGETS.join(", ")));
        }
    }
    Ok(())
}

/// Whether a variable claims to be ours. P2PSIM_…, the simulated GPUs' prefix, is not.
fn is_ours(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

/// The candidate that a word most likely stands for: what other programs take for off or on, or the nearest.
fn meant<'a, I: Iterator<Item = &'a str>>(word: &str, candidates: impl Fn() -> I, default: &'a str) -> &'a str {
    const SYNONYMS: [(&str, [&str; 4]); 2] =
        [("off", ["0", "false", "no", "none"]), ("on", ["1", "true", "yes", "all"])];
    let is_one = |words: &[&str]| words.iter().any(|synonym| synonym.eq_ignore_ascii_case(word));
    let Some((stands_for, _)) = SYNONYMS.iter().find(|(_, words)| is_one(words)) else {
        return nearest(word, candidates());
    };
    candidates().find(|candidate| candidate == stands_for).unwrap_or(default)
}

/// The candidate with the fewest edits from `word`.
fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> &'a str {
    candidates.min_by_key(|candidate| distance(word, candidate)).unwrap_or_default()
}

/// How many characters must be inserted, removed or replaced (Levenshtein), whatever their case.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (above, b) in row.iter().skip(1).zip(to.chars()) {
            let replaced = diagonal + usize::from(!a.eq_ignore_ascii_case(&b));
            diagonal = *above;
            left = replaced.min(*above + 1).min(left + 1);
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> (Config, Vec<String>) {
        Config::read(variables.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn read_nothing_set_defaults_hold() {
        let (config, warnings) = read(&[("PATH", "/bin"), ("P2PSIM_DEVICES", "4"), ("P2PSHIMS", "x")]);
        assert_eq!(config, Config::default());
        assert!(warnings.is_empty(), "{warnings:?}");
    }

    #[test]
    fn read_valid_values_are_taken() {
        let (config, warnings) =
            read(&[("P2PSHIM", "off"), ("P2PSHIM_LOG", "warn,p2pshim::lookup=debug"), ("P2PSHIM_LOG_FILE", "/tmp/x")]);
        assert_eq!(
            config,
            Config {
                on: false,
                log: "warn,p2pshim::lookup=debug".into(),
                log_file: Some("/tmp/x".into()),
                ..Config::default()
            }
        );
        assert!(warnings.is_empty(), "{warnings:?}");
    }

    #[test]
    fn read_sizes_are_bytes_or_powers_of_1024() {
        let limit = |value| {
            let (config, warnings) = read(&[("P2PSHIM_TRACE_LIMIT", value)]);
            (config.trace_limit, warnings.len())
        };
        assert_eq!([limit("4096"), limit("500M"), limit("2 GiB")], [(4096, 0), (500 << 20, 0), (2 << 30, 0)]);
        for wrong in ["M", "-1", "1.5G", "5X", "99999999T", "5 M x"] {
            assert_eq!(limit(wrong), (1 << 30, 1), "{wrong}");
        }
    }

    #[test]
    fn read_empty_value_counts_as_not_set() {
        let (config, warnings) = read(&[("P2PSHIM", ""), ("P2PSHIM_LOG_FILE", "")]);
        assert!(config.on && config.log_file.is_none() && warnings.is_empty());
    }

    #[test]
    fn read_unknown_name_warning_names_the_nearest() {
        let (_, warnings) = read(&[("P2PSHIM_LOGFILE", "x")]);
        assert_eq!(warnings, ["P2PSHIM_LOGFILE: no such option; did you mean P2PSHIM_LOG_FILE? It has no effect"]);
    }

    #[test]
    fn read_unknown_value_warning_names_the_nearest_and_the_default_holds() {
        let (config, warnings) = read(&[("P2PSHIM", "offf"), ("P2PSHIM_LOG", "trce")]);
        assert_eq!(config, Config::default());
        assert_eq!(warnings[0], "P2PSHIM=\"offf\": no such value; did you mean off? The default holds: on");
        assert!(
            warnings[1].contains("P2PSHIM_LOG=\"trce\"") && warnings[1].contains("did you mean trace?"),
            "{warnings:?}"
        );
    }

    #[test]
    fn read_words_of_other_programs_for_off_and_on_are_understood_as_such() {
        for (name, value, meant) in [
            ("P2PSHIM", "0", "off"),
            ("P2PSHIM", "False", "off"),
            ("P2PSHIM", "1", "on"),
            ("P2PSHIM_ACCESS", "no", "off"),
            ("P2PSHIM_VALIDATE", "0", "off"),
            ("P2PSHIM_VALIDATE", "1", "warn"),
        ] {
            let (config, warnings) = read(&[(name, value)]);
            assert_eq!(config, Config::default());
            assert!(warnings[0].contains(&format!("did you mean {meant}?")), "{warnings:?}");
        }
    }

    #[test]
    fn read_access_options_are_taken() {
        let (config, warnings) = read(&[
            ("P2PSHIM_ACCESS", "app"),
            ("P2PSHIM_DENY", "0-1, 2>3"),
            ("P2PSHIM_PROBE", "off"),
            ("P2PSHIM_POOLS", "app"),
        ]);
        let denied = [(0, 1), (1, 0), (2, 3)].map(|(device, peer)| Denied { device, peer });
        let expected = Config {
            access: Access::App,
            denied: denied.to_vec(),
            probe: Probe::Off,
            grants_pools: false,
            ..Config::default()
        };
        assert_eq!(config, expected);
        assert!(warnings.is_empty(), "{warnings:?}");
    }

    #[test]
    fn read_damaged_pairs_nothing_is_denied() {
        for pairs in ["0", "0:1", "0-1,x>2", "3-3", "-1>2", "0>99999"] {
            let (config, warnings) = read(&[("P2PSHIM_DENY", pairs)]);
            assert!(config.denied.is_empty(), "{pairs}");
            assert!(warnings.len() == 1 && warnings[0].contains("is no pair of devices"), "{warnings:?}");
        }
    }

    #[test]
    fn read_damaged_filter_is_refused() {
        let (config, warnings) = read(&[("P2PSHIM_LOG", "p2pshim::call=lots")]);
        assert_eq!(config.log, "warn");
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn distance_counts_edits() {
        for (from, to, edits) in
            [("", "", 0), ("on", "on", 0), ("ON", "on", 0), ("of", "off", 1), ("kitten", "sitting", 3), ("", "abc", 3)]
        {
            assert_eq!(distance(from, to), edits, "{from} {to}");
        }
    }

    #[test]
    fn texts_are_c_strings() {
        for option in Variable::ALL {
            for text in [option.c_name(), option.c_values(), option.c_default(), option.c_help()] {
                assert_eq!(text.find('\0'), Some(text.len() - 1), "{text:?}");
            }
        }
    }
}
