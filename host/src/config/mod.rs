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
//! `p2pshim options`, the arguments of `p2pshim run`, docs/OPTIONS.md and Python's table (`make header`) follow.

pub mod settings;
#[macro_use]
mod option;
mod values;

use std::ffi::OsString;

use log::{Level, Metadata};

use crate::nearest::nearest;
use crate::size::size;
use crate::text::shortened;
pub use option::{Changes, Variable};
pub use values::{
    Access, Broken, Denied, Forgiven, GpuName, GpuTiming, Order, Readback, Stacks, Staging, Validate, Verify,
};

/// The beginning of every option's name.
pub const PREFIX: &str = "P2PSHIM";

/// The level of the command's own log. The library has no such option, and does not warn of it.
pub const COMMAND_LOG: &str = "P2PSHIM_COMMAND_LOG";

options! {
    /// Whether anything but forwarding happens.
    on: bool {
        variable: P2PSHIM,
        values: words("on" = true, "off" = false),
        changes: Changes::Never,
        help: "off: p2pshim only forwards calls",
        details: "",
    }

    /// The party that decides about peer access.
    access: Access {
        variable: P2PSHIM_ACCESS,
        values: words("auto" = Access::Auto, "app" = Access::App, "off" = Access::Off),
        changes: Changes::Between(
            |config| config.access != Access::Off,
            "between `auto` and `app`; pairs that are enabled stay enabled. `off` cannot be changed, because the program may have asked for its peers",
        ),
        help: "auto: p2pshim verifies and enables peer access for pairs that copy; app: only the program enables it; off: peer access is hidden from the program, and copies go through the host",
        details: "With `off`, `cudaDeviceCanAccessPeer` writes 0, enabling returns 217, disabling returns 705, and the P2P attributes 2 to 5 are 0. Granting another device access to a pool or to mapped memory returns 101. Copies work, through the host. With `app` p2pshim verifies only pairs that the program enables (P2PSHIM_BROKEN). For HIP see [HIP.md](HIP.md).",
    }

    /// Pairs whose peer access is hidden.
    denied: Vec<Denied> {
        variable: P2PSHIM_DENY,
        values: text("pairs of devices such as 0-1,2>3, by ordinals, UUIDs or PCI addresses", "" = Vec::new(), values::pairs),
        changes: Changes::Never,
        help: "pairs for which P2PSHIM_ACCESS=off applies: 0-1 in both directions, 2>3 the access of device 2 to memory of device 3",
        details: "Ordinals are those of the program, after `CUDA_VISIBLE_DEVICES`. UUIDs (`GPU-…`, as `nvidia-smi -L` prints them) and PCI addresses (`1a:00.0`) mean the same GPU in each process: `GPU-5f…-GPU-8a…`, `1a:00.0-3b:00.0`. A launcher may give each process other devices, so `p2pshim run` turns ordinals into UUIDs before it starts the program; for that it starts CUDA in a process of its own. The shim warns of an ordinal that no device of the process has. For HIP p2pshim knows only ordinals; `hip:0-hip:1` means those of HIP alone. In `2>3` device 2 accesses memory of device 3 (quote it: the shell interprets `>`). The shim then enables neither direction. A program that enables 3>2 itself still copies directly between the two; to send all copies of a pair through the host, write `2-3`.",
    }

    /// How a pair is verified.
    verify: Verify {
        variable: P2PSHIM_VERIFY,
        values: words("quick" = Verify::Quick, "full" = Verify::Full, "off" = Verify::Off),
        changes: Changes::Always,
        help: "how p2pshim verifies a pair before it uses it; quick: copies data and compares it; full: also expects a verdict of p2pshim doctor on loads and stores by kernels; off: not at all",
        details: "Some machines lose only what kernels load and store. `p2pshim doctor` finds that, and [saves its verdicts](DOCTOR.md#how-programs-use-the-verdicts). p2pshim does not use a pair that failed there, with `quick` either. `p2pshim run` checks copies before it starts the program, and with `full` kernels too (about 0.9 s per direction on H200). With `full` a pair without a verdict on kernels is verified as with `quick`, and a line in the log says so. For HIP see [HIP.md](HIP.md).",
    }

    /// The answer to a program that enables a broken pair itself.
    broken: Broken {
        variable: P2PSHIM_BROKEN,
        values: words("refuse" = Broken::Refuse, "warn" = Broken::Warn),
        changes: Changes::Never,
        help: "the answer to a program that itself enables peer access on a path where data does not arrive; refuse: p2pshim verifies the pair first, and if that fails, the program sees no peer access and its copies go through the host; warn: the program gets peer access, and a warning; p2pshim takes its copies through the host, but copies of graphs and accesses of kernels are wrong",
        details: "A broken pair looks like hardware without a path: `cudaDeviceCanAccessPeer` writes 0, the P2P attributes 2 to 5 are 0, enabling returns 217, and granting a device access to a pool or to mapped memory returns 101. p2pshim verifies the pair as P2PSHIM_VERIFY says (some milliseconds on H200), or takes the verdict of `p2pshim doctor`. It does so before the program's own `cudaDeviceEnablePeerAccess`, `cuMemPoolSetAccess` or `cuMemSetAccess`, and when the program asks whether there is a path, if both devices have a context. If the devices are busy or a stream is being captured, p2pshim cannot verify the pair, and leaves it to the program. It refuses memory of another process if it knows on which GPU that lies: opening an IPC handle returns 217 under `p2pshim run`. With HIP enabling returns 101, and no copies are staged: [HIP.md](HIP.md).",
    }

    /// Codes of calls that had nothing to do, in place of which the program gets success.
    forgiven: Forgiven {
        variable: P2PSHIM_FORGIVE,
        values: text("704 and 705, with a comma between", "" = Forgiven::default(), values::forgiven),
        changes: Changes::Never,
        help: "704: enabling peer access that is already enabled returns success; 705: disabling access that is not enabled returns success. For programs that take these codes for failures",
        details: "Both codes say that there was nothing to do. With HIP the option has no effect. The report names the calls.",
    }

    /// Which copies of the program are read back.
    readback: Readback {
        variable: P2PSHIM_READBACK,
        values: words("off" = Readback::Off, "sample" = Readback::Sample, "all" = Readback::All),
        changes: Changes::Always,
        help: "whether p2pshim compares copies between devices with their source afterwards; sample: the beginning, a part between and the end of the first 8 copies of each pair and path, then of ever fewer; all: all bytes of every copy, and the call waits for that",
        details: "Use it if data is wrong though every pair was verified. Each device reads its own end back. The copy's stream waits for that, so that later work in it changes nothing too early. With `sample` the call waits only if it would wait anyway, and a later call tells the result. A difference is the finding [P2P-data-wrong](MESSAGES.md#p2p-data-wrong) if the path then fails its verification too, and else [P2P-data-changed](MESSAGES.md#p2p-data-changed). p2pshim reads back peer copies, regular copies, 2D and 3D copies and batches. It does not read back copies with arrays, of captures and of graphs, nor batches whose sources CUDA reads during the call. `sample` looks at 8 copies of a batch at most. Each stream that copies takes page-locked memory of the host: 32 KiB with `sample`, 20 MiB with `all`, within P2PSHIM_STAGING_LIMIT.",
    }

    /// Whether memory pools are made accessible.
    grants_pools: bool {
        variable: P2PSHIM_POOLS,
        values: words("auto" = true, "app" = false),
        changes: Changes::Always,
        help: "auto: if a memory pool is copied from or to, p2pshim grants the other device access to it; app: only the program grants access",
        details: "p2pshim verifies memory of pools separately before it grants access.",
    }

    /// The stager of copies.
    staging: Staging {
        variable: P2PSHIM_STAGING,
        values: words("auto" = Staging::Auto, "driver" = Staging::Driver, "always" = Staging::Always, "blocking" = Staging::Blocking),
        changes: Changes::Always,
        help: "who takes large copies through the host where there is no direct path; auto: p2pshim (overlapping chunks) or the driver, whichever the doctor measured as faster; the driver if nothing was measured; driver: the driver, which holds the caller meanwhile; always: p2pshim, whose calls return at once; blocking: p2pshim, and the call returns when the copy is done",
        details: "A copy of 8 MiB or more is large, in every form: synchronous and asynchronous copies, 2D and 3D copies, batches. The pair must stay without a path: no hardware path, denied, blocked, at the limit of peers, a pool or mapped memory without access, or access that `P2PSHIM_ACCESS=app` leaves to the program. `auto` needs measurements: run `p2pshim doctor` once per boot, or start with `p2pshim run`, which measures pairs without a path. These compare both stagers, for each size of copies, on one busy link and on all links. The driver stages rows of less than 4 KiB, which are not measured. A line of the log at level `info` says who stages. If a staged copy differs when `P2PSHIM_READBACK` reads it back, the driver stages the pair from then on. The driver always stages arrays, managed memory, captures and graphs. While the driver holds its caller, a program cannot overwrite the memory of a copy that has not ended. If `blocking` makes a fault go away, the program does that. (If it frees the memory in another stream, or unmaps it, that stream or call waits for the copy.) If a program has access to a broken or denied pair all the same, p2pshim stages the pair's copies with every value.",
    }

    /// Whether order is checked.
    order: Order {
        variable: P2PSHIM_ORDER,
        values: words("off" = Order::Off, "on" = Order::On, "enforce" = Order::Enforce),
        changes: Changes::Never,
        help: "on: p2pshim checks whether an order between copies, kernels and frees is missing: a stream or event that nothing waits for; enforce: it also adds the events and waits that P2PSHIM_RACES asks for",
        details: "[ORDER.md](ORDER.md) says what it finds, and what it cannot. p2pshim reads the option when the program looks up its first function, because it must then also intercept events, kernels and memory operations. `p2pshim run --order` without a value is the same as `--order=on`.",
    }

    /// The folder of traces with races that are to end.
    races: Option<OsString> {
        variable: P2PSHIM_RACES,
        values: path("folder"),
        changes: Changes::Never,
        help: "with P2PSHIM_ORDER=enforce: the folder with the traces of an earlier run. For each race in them p2pshim records an event behind the first access, and lets the second wait for it",
        details: "`p2pshim run` looks for the races, and writes their places to `races.txt` in that folder, which the shim reads. [Which waits are added](ORDER.md#add-the-missing-waits).",
    }

    /// Page-locked memory of the host for staging.
    staging_limit: u64 {
        variable: P2PSHIM_STAGING_LIMIT,
        values: text("bytes such as 500M", "256M" = 256 << 20, size),
        changes: Changes::Always,
        help: "the most page-locked memory of the host that p2pshim takes for staging; if it is used up, the driver stages",
        details: "A stream takes 20 MiB for each pair of devices that it copies between, and a pair at most 64 MiB. A stream that has nothing left to copy leaves its memory to the next.",
    }

    /// Whether peer copies and batches on capturing streams are replaced.
    rewrites_captured: bool {
        variable: P2PSHIM_CAPTURE,
        values: words("rewrite" = true, "forward" = false),
        changes: Changes::Always,
        help: "rewrite: p2pshim replaces a peer copy on a capturing stream, which CUDA refuses, by an equivalent copy that CUDA can capture, and a refused batch by its copies; forward: p2pshim forwards them, and CUDA refuses them",
        details: "Copies with arrays or host memory have no equivalent: p2pshim forwards them. It does not check contexts, because the pointers decide. It captures the copies of a batch one after another. If an end is pageable memory or an array, or a source has to be read during the call, it captures none of them. The finding [P2P-capture-batch](MESSAGES.md#p2p-capture-batch) then says so.",
    }

    /// The treatment of calls whose arguments are wrong.
    validate: Validate {
        variable: P2PSHIM_VALIDATE,
        values: words("warn" = Validate::Warn, "strict" = Validate::Strict, "off" = Validate::Off),
        changes: Changes::Always,
        help: "warn: log what is wrong with peer calls, and what their errors mean; strict: also return documented errors that the real library overlooks; off: neither",
        details: "p2pshim logs a finding in full once per place in the program, after the call, and notes from `P2PSHIM_LOG=info` on. Without `strict`, calls return what they would return without p2pshim. With `strict` the program gets every error that CUDA's documentation defines, even where the real library silently accepts the call or crashes. All findings: [MESSAGES.md](MESSAGES.md).",
    }

    /// The lines that are logged: an env_logger filter.
    log: String {
        variable: P2PSHIM_LOG,
        values: text(
            "off|error|warn|info|debug|trace, or an env_logger filter such as warn,p2pshim::lookup=debug",
            "warn" = "warn".to_owned(),
            values::filter,
        ),
        changes: Changes::Always,
        help: "what p2pshim writes to standard error; trace: one line for each intercepted call",
        details: "The filter is that of [env_logger](https://docs.rs/env_logger). Targets: `p2pshim::call` (at `trace`: each call), `p2pshim::finding`, `p2pshim::lookup` (at `debug`: what look-ups found), `p2pshim::policy` (at `info`: what p2pshim decided). [LOG_LINES.md](LOG_LINES.md) explains the lines, and [when lines are lost](LOG_LINES.md#lines-that-are-lost).",
    }

    /// Where the log goes, if not to standard error.
    log_file: Option<OsString> {
        variable: P2PSHIM_LOG_FILE,
        values: path("path"),
        changes: Changes::Never,
        help: "append the log to this file (created with mode 0600) instead of standard error",
        details: "If the file cannot be opened or is a symbolic link, p2pshim warns and uses standard error. In a program that runs with more privileges than its user the option has no effect. A FIFO that nobody reads [does not stop the program](LOG_LINES.md#lines-that-are-lost). A regular file stops it for as long as its file system blocks, for example while an NFS server is gone.",
    }

    /// Where calls are recorded.
    trace: Option<OsString> {
        variable: P2PSHIM_TRACE,
        values: path("folder"),
        changes: Changes::Never,
        help: "record each intercepted call in a file of this folder, one file per process, for p2pshim report",
        details: "A record costs [some 100 ns](MEASUREMENTS.md#host) and is in the file when the call returns. [TRACE_FORMAT.md](dev/TRACE_FORMAT.md) describes the files.",
    }

    /// Bytes that a file of records may have.
    trace_limit: u64 {
        variable: P2PSHIM_TRACE_LIMIT,
        values: text("bytes such as 500M", "1G" = 1 << 30, size),
        changes: Changes::UntilTraced,
        help: "the largest size of a process's file; if it is full, further calls are only counted",
        details: "K, M, G and T are powers of 1024, as are KiB, MiB, GiB and TiB; kB, MB, GB and TB are powers of 1000. Each size that p2pshim takes is written so. On a file system in memory (tmpfs) a file also takes no more than a 32nd of the memory that the control group may use.",
    }

    /// The copies whose time on the GPU is measured.
    gpu_timing: GpuTiming {
        variable: P2PSHIM_GPU_TIMING,
        values: words("sample" = GpuTiming::Sample, "all" = GpuTiming::All, "off" = GpuTiming::Off),
        changes: Changes::Always,
        help: "for which copies on streams a trace has their time on the GPU; sample: the first 64 of a thread, then one in 4093, and more if they are large; all: each; off: none",
        details: "It has an effect only while a trace is written. p2pshim records an event before and one after the copy, which takes the host some 10 µs. Copies that are synchronous or on the legacy default stream have no GPU time.",
    }

    /// The calls whose line of Python, or caller, is noted.
    stacks: Stacks {
        variable: P2PSHIM_STACKS,
        values: words("sites" = Stacks::Sites, "all" = Stacks::All, "off" = Stacks::Off),
        changes: Changes::UntilTraced,
        help: "for which copies between devices a trace names the line of the Python program, and the function that called NVIDIA's static runtime; sites: of each place, pair and size the first 64 copies, then the 128th, 256th and so on; all: each; off: none",
        details: "p2pshim notes *lines* only while it writes a trace, in programs with CPython 3.11 to 3.15. [USAGE.md](USAGE.md#which-line-makes-the-copies) says which line. If a copy breaks a rule, p2pshim notes its line unless the value is `off`. It notes *functions* for each finding, and for driver calls through looked-up pointers, which a static runtime makes; this needs no trace. [What a look costs](USAGE.md#which-function-calls-a-static-runtime).",
    }

    /// Whether a table is written when the program ends.
    summary: bool {
        variable: P2PSHIM_SUMMARY,
        values: words("off" = false, "on" = true),
        changes: Changes::Always,
        help: "on: when the program returns from main or calls exit, write a table of pairs, functions and findings to standard error",
        details: "It needs no trace. `p2pshim run --summary` without a value is the same as `--summary=on`.",
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
            let Some(name) = name.to_str().filter(|name| is_ours(name) && *name != COMMAND_LOG) else { continue };
            let Some(option) = Variable::named(name) else {
                let rest = |name: &'static str| name.strip_prefix(PREFIX).unwrap_or(name);
                let ours = OPTIONS.iter().map(|option| rest(option.name()));
                let meant = match nearest(name.strip_prefix(PREFIX).unwrap_or(name), ours) {
                    Some(nearest) => format!("; did you mean {PREFIX}{nearest}?"),
                    None => ".".to_owned(),
                };
                warnings.push(format!("{}: no such option{meant} It has no effect", shortened(name)));
                continue;
            };
            if !value.is_empty() {
                warnings.extend(option.take(&mut config, &value).err());
            }
        }
        (config, warnings)
    }

    /// Whether the environment says that order is checked: as long as nothing else is read.
    pub fn order_of(environment: impl Iterator<Item = (OsString, OsString)>) -> Order {
        let (config, _) = Self::read(environment);
        if config.on { config.order } else { Order::Off }
    }

    /// Whether findings, notes or others, are told in full on standard error while the program runs.
    pub fn logs_finding(&self, is_note: bool) -> bool {
        let level = if is_note { Level::Info } else { Level::Warn };
        let finding = Metadata::builder().level(level).target("p2pshim::finding").build();
        let mut filter = env_filter::Builder::new();
        let is_shown = filter.try_parse(&self.log).is_ok_and(|filter| filter.build().enabled(&finding));
        self.on && self.log_file.is_none() && is_shown
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
    fn read_names_and_values_like_none_of_ours_are_not_guessed_at() {
        let (_, warnings) = read(&[("P2PSHIM_HOME", "x"), ("P2PSHIM_ACCESS", "maybe"), ("P2PSHIM_LOG", "foo")]);
        assert_eq!(warnings[0], "P2PSHIM_HOME: no such option. It has no effect");
        assert_eq!(
            warnings[1],
            "P2PSHIM_ACCESS=\"maybe\": no such value; write auto, app or off. The default holds: auto"
        );
        assert!(
            warnings[2].contains("`foo` is neither a level (off, error, warn, info, debug, trace) nor one of"),
            "{warnings:?}"
        );
        assert!(warnings.iter().all(|warning| !warning.contains("did you mean")), "{warnings:?}");
    }

    #[test]
    fn logs_finding_as_the_filter_says_unless_it_goes_to_a_file() {
        let logs = |variables: &[(&str, &str)]| [false, true].map(|is_note| read(variables).0.logs_finding(is_note));
        assert_eq!(logs(&[]), [true, false]);
        assert_eq!(logs(&[("P2PSHIM_LOG", "info")]), [true, true]);
        assert_eq!(logs(&[("P2PSHIM_LOG", "warn,p2pshim::finding=off")]), [false, false]);
        assert_eq!(logs(&[("P2PSHIM_LOG_FILE", "/tmp/x")]), [false, false]);
        assert_eq!(logs(&[("P2PSHIM", "off")]), [false, false]);
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
            ("P2PSHIM_VERIFY", "off"),
            ("P2PSHIM_POOLS", "app"),
        ]);
        let named =
            |[device, peer]: [i32; 2]| Denied { device: GpuName::Ordinal(device), peer: GpuName::Ordinal(peer) };
        let denied = [[1, 0], [0, 1], [2, 3]].map(named);
        let expected = Config {
            access: Access::App,
            denied: denied.to_vec(),
            verify: Verify::Off,
            grants_pools: false,
            ..Config::default()
        };
        assert_eq!(config, expected);
        assert!(warnings.is_empty(), "{warnings:?}");
    }

    #[test]
    fn read_pairs_by_uuid_and_address() {
        const ONE: &str = "GPU-70327073-696d-2047-5055-202e2e2e2e0A";
        const OTHER: &str = "gpu-70327073-696d-2047-5055-202e2e2e2e01";
        let read = |pairs: &str| read(&[("P2PSHIM_DENY", pairs)]).0.denied;
        let [one, other] = [ONE, OTHER].map(|uuid| GpuName::Uuid(uuid.to_ascii_lowercase()));
        let both = [Denied { device: other.clone(), peer: one.clone() }, Denied { device: one.clone(), peer: other }];
        assert_eq!(read(&format!("{ONE}-{OTHER}")), both);
        let address = GpuName::BusId("0000:1a:00.0".to_owned());
        assert_eq!(read("00000000:1A:00.0>3"), [Denied { device: address.clone(), peer: GpuName::Ordinal(3) }]);
        assert_eq!(read(&format!("{ONE}>1a:00.0")), [Denied { device: one.clone(), peer: address.clone() }]);
        let of_hip = Denied { device: GpuName::Hip(2), peer: GpuName::Hip(0) };
        assert_eq!(
            (read("hip:2>hip:0"), of_hip.hip_ordinals(), of_hip.ordinals()),
            (vec![of_hip.clone()], Some([2, 0]), None)
        );
        assert_eq!(read("2>0").first().and_then(Denied::hip_ordinals), Some([2, 0]), "of either");
        assert!(one.is(7, ONE, "") && address.is(7, "", "0000:1A:00.0") && !address.is(7, "", "0001:1a:00.0"));
        assert_eq!(
            [one, address].map(|it| it.to_string()),
            [ONE.to_ascii_lowercase().replacen("gpu", "GPU", 1), "GPU 0000:1a:00.0".into()]
        );
    }

    #[test]
    fn read_damaged_pairs_nothing_is_denied() {
        for pairs in ["0", "0:1", "0-1,x>2", "3-3", "-1>2", "0>99999", "GPU-0-GPU-1", "1a:00.0", "0>1a:00"] {
            let (config, warnings) = read(&[("P2PSHIM_DENY", pairs)]);
            assert!(config.denied.is_empty(), "{pairs}");
            assert!(warnings.len() == 1 && warnings[0].contains("is no pair of devices"), "{warnings:?}");
        }
        let (config, warnings) = read(&[("P2PSHIM_DENY", "0,0-1,x>2")]);
        assert!(config.denied.is_empty() && warnings[0].contains("`0`, `x>2` are no pairs of devices"), "{warnings:?}");
    }

    #[test]
    fn read_codes_that_had_nothing_to_do_are_forgiven_and_no_others() {
        let forgiven = |codes: &str| {
            let (config, warnings) = read(&[("P2PSHIM_FORGIVE", codes)]);
            ([config.forgiven.enabled, config.forgiven.not_enabled], warnings.len())
        };
        assert_eq!(forgiven("704"), ([true, false], 0));
        assert_eq!(forgiven("705, 704"), ([true, true], 0));
        assert_eq!(forgiven("704,217"), ([false, false], 1));
    }

    #[test]
    fn read_damaged_filter_is_refused() {
        let (config, warnings) = read(&[("P2PSHIM_LOG", "p2pshim::call=lots")]);
        assert_eq!(config.log, "warn");
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn defaults_as_text_are_those_as_values() {
        for option in Variable::ALL.iter().filter(|option| !option.default().is_empty()) {
            let mut config = Config::default();
            option.take(&mut config, OsStr::new(option.default())).unwrap();
            assert_eq!(config, Config::default(), "{}", option.name());
        }
    }
}
