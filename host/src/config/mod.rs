//! Options: one row each, read once from the environment.
//!
//! # How to add an option
//! Add a row to the table below, and use the field of [`Config`] that it makes. A row says:
//!
//! - what the value decides, and the field with its type; a type of its own goes to `values.rs`;
//! - `variable`: the name in the environment;
//! - `values`: `words(…)`, each with its value, the default first; or `text(…)`, with what is said of it, the default as
//!   text and as value, and the function of `values.rs` that reads it; or `path(…)`, which is unset by default;
//! - `changes`: whether a program can still set it while it runs ([`Changes`]);
//! - `help`, a sentence or two for everybody, and `details`, what else docs/OPTIONS.md says, in Markdown.
//!
//! `p2pshim options`, the arguments of `p2pshim run`, the C interface and docs/OPTIONS.md (`make header`) follow.

pub mod given;
mod nearest;
#[macro_use]
mod option;
mod values;

use std::ffi::OsString;

use nearest::nearest;
pub use option::{Changes, Variable};
pub use values::{Access, Denied, GpuTiming, Probe, Validate};

/// What every option's name begins with.
pub const PREFIX: &str = "P2PSHIM";

options! {
    /// Whether anything but forwarding happens.
    on: bool {
        variable: P2PSHIM,
        values: words("on" = true, "off" = false),
        changes: Changes::Never,
        help: "off: every hook hands out or calls the real function and does nothing else",
        details: "",
    }

    /// Who decides about peer access.
    access: Access {
        variable: P2PSHIM_ACCESS,
        values: words("auto" = Access::Auto, "app" = Access::App, "off" = Access::Off),
        changes: Changes::Between(
            |config| config.access != Access::Off,
            "between `auto` and `app`: what is enabled stays so. `off` is what the program was told of its peers, and holds for good",
        ),
        help: "auto: peer access is verified and enabled for pairs that copy; app: only what the program enables itself; off: peer access is hidden from the program, and copies go through the host",
        details: "`off` hides peer access like this: `cudaDeviceCanAccessPeer` says 0, enabling answers 217 and disabling 705, the P2P attributes 2 to 5 say 0; granting a pool or mapped memory to another device answers 101; copies work, through the host. With `app` nothing is verified either. [HIP](HIP.md) has its own ways.",
    }

    /// Pairs whose peer access is hidden.
    denied: Vec<Denied> {
        variable: P2PSHIM_DENY,
        values: text("pairs of devices such as 0-1,2>3", "" = Vec::new(), values::pairs),
        changes: Changes::Never,
        help: "pairs for which P2PSHIM_ACCESS=off holds: 0-1 both ways, 2>3 the access of device 2 to memory of device 3",
        details: "Ordinals are those that the program counts by. In `2>3` device 2 is the one that reaches (quote it: `>` is the shell's). The shim then enables neither direction; a program that enables 3>2 itself still copies directly between the two, so to keep all copies off a pair write `2-3`.",
    }

    /// How a pair is verified.
    probe: Probe {
        variable: P2PSHIM_PROBE,
        values: words("quick" = Probe::Quick, "full" = Probe::Full, "off" = Probe::Off),
        changes: Changes::Always,
        help: "how a pair is verified before it is trusted; quick: data is copied and compared; full: by the verdict of p2pshim doctor as well, for which kernels load and store; off: not at all",
        details: "Some machines lose only what kernels load and store. `p2pshim doctor` finds that, and keeps its verdicts in `$XDG_CACHE_HOME/p2pshim`, else `~/.cache/p2pshim`, until the next boot. With `full` a pair that failed there is not used. `p2pshim run` makes the verdicts that are missing before it starts the program (some 0.9 s a direction on H200). Without one, a pair is verified as with `quick`, and a line says so.",
    }

    /// Whether memory pools are made accessible.
    grants_pools: bool {
        variable: P2PSHIM_POOLS,
        values: words("auto" = true, "app" = false),
        changes: Changes::Always,
        help: "auto: a memory pool seen in a copy between devices is made accessible to the other device; app: only what the program grants itself",
        details: "A pool is verified by a proof of its own before it is made accessible.",
    }

    /// Whether peer copies on capturing streams are replaced.
    rewrites_captured: bool {
        variable: P2PSHIM_CAPTURE,
        values: words("rewrite" = true, "forward" = false),
        changes: Changes::Always,
        help: "rewrite: a peer copy on a capturing stream, which CUDA refuses, becomes the equal copy that it can capture",
        details: "Copies with arrays or host memory have no equal and are forwarded. Contexts are not looked at, as the pointers decide.",
    }

    /// What is done about calls whose arguments are wrong.
    validate: Validate {
        variable: P2PSHIM_VALIDATE,
        values: words("warn" = Validate::Warn, "strict" = Validate::Strict, "off" = Validate::Off),
        changes: Changes::Always,
        help: "warn: says what is wrong with peer calls, and what their errors mean (p2pshim explain); strict: also answers documented errors that the real library overlooks; off: neither",
        details: "A finding is said in full once a place in the program, after the call, a note from `P2PSHIM_LOG=info` on; answers stay as they are. `strict`: where CUDA's documentation defines an error, the program gets it, also where the real library accepts the call in silence or crashes. All findings: [MESSAGES.md](MESSAGES.md).",
    }

    /// What is logged: an env_logger filter.
    log: String {
        variable: P2PSHIM_LOG,
        values: text(
            "off|error|warn|info|debug|trace, or an env_logger filter such as warn,p2pshim::lookup=debug",
            "warn" = "warn".to_owned(),
            values::filter,
        ),
        changes: Changes::Always,
        help: "what is written to standard error; trace is one line for each intercepted call",
        details: "The filter is that of [env_logger](https://docs.rs/env_logger). Targets: `p2pshim::call` (at `trace`: each call), `p2pshim::finding`, `p2pshim::lookup` (at `debug`: what look-ups found), `p2pshim::policy` (at `info`: what was done about a call). How to read the lines: [LOG_LINES.md](LOG_LINES.md). A pipe, socket or terminal that nobody reads does not hold the program up: a line waits 200 ms at most, and [those that are lost are counted](LOG_LINES.md#lines-that-are-lost).",
    }

    /// Where the log goes, if not to standard error.
    log_file: Option<OsString> {
        variable: P2PSHIM_LOG_FILE,
        values: path("path"),
        changes: Changes::Never,
        help: "append the log to this file (created with mode 0600) instead of standard error",
        details: "A file that cannot be opened, or is a symbolic link, is warned of, and standard error is used. A program with more rights than its user ignores the option. A FIFO that nobody reads does not hold the program up (see P2PSHIM_LOG); a regular file does for as long as its file system takes, such as an NFS server that is gone.",
    }

    /// Where calls are recorded.
    trace: Option<OsString> {
        variable: P2PSHIM_TRACE,
        values: path("folder"),
        changes: Changes::Never,
        help: "keep a record of each intercepted call in a file of this folder, one a process, for p2pshim report",
        details: "A record costs [some 50 ns](results/trace-cost-2026-11-21.md) and is in the file when the call returns. What the files hold: [TRACE_FORMAT.md](TRACE_FORMAT.md).",
    }

    /// Bytes that a file of records may have.
    trace_limit: u64 {
        variable: P2PSHIM_TRACE_LIMIT,
        values: text("bytes such as 500M, with K, M, G or T for powers of 1024", "1G" = 1 << 30, values::size),
        changes: Changes::UntilTraced,
        help: "how large the file of a process may become; further calls are only counted",
        details: "",
    }

    /// Of which copies it is measured how long GPUs take.
    gpu_timing: GpuTiming {
        variable: P2PSHIM_GPU_TIMING,
        values: words("sample" = GpuTiming::Sample, "all" = GpuTiming::All, "off" = GpuTiming::Off),
        changes: Changes::Always,
        help: "whether a trace tells how long GPUs take for copies on streams; sample: of a thread's first 64 and then of one in 1021, of more where they are large; all: of each; off: of none",
        details: "Only while a trace is kept. Events are put before and after the copy, which takes the host some 10 µs; copies that are not asynchronous, or on the legacy default stream, have none.",
    }

    /// Whether a table is written when the program ends.
    summary: bool {
        variable: P2PSHIM_SUMMARY,
        values: words("off" = false, "on" = true),
        changes: Changes::Always,
        help: "on: a table of pairs, functions and findings on standard error when the program ends by returning from main or by exit",
        details: "No trace is needed for it.",
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
                let nearest = nearest(name, OPTIONS.iter().map(|option| option.name()));
                warnings.push(format!("{name}: no such option; did you mean {nearest}? It has no effect"));
                continue;
            };
            if !value.is_empty() {
                warnings.extend(option.take(&mut config, &value).err());
            }
        }
        (config, warnings)
    }
}

/// Whether a variable claims to be ours. P2PSIM_…, the simulated GPUs' prefix, is not.
fn is_ours(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

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
    fn defaults_as_text_are_those_as_values() {
        for option in Variable::ALL.iter().filter(|option| !option.shown_default().is_empty()) {
            let mut config = Config::default();
            option.take(&mut config, OsStr::new(option.shown_default())).unwrap();
            assert_eq!(config, Config::default(), "{}", option.name());
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
