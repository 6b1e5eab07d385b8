//! The report for the user: a table.

use std::fmt::Write as _;
use std::io::{self, Write};

use std::path::PathBuf;

use p2pshim_host::machine::{self, Acs, Fault, Gpu, Machine, Translation};
use p2pshim_host::stagers::{Rates, Stagers};
use p2pshim_host::text::Escaped;

use super::Inventory;
use super::inventory::Device;
use super::lines::{Finding, Measure, Path, Test, Verdict};
use super::nccl::Diagnosed;
use super::place::{Place, Port, Services};
use super::verify::THROUGH_HOST;
use crate::explain::WIDTH;
use crate::nvml::status_word;
use crate::report::term::few;
use crate::report::{self, wrapped};
use crate::version;

/// All that was found.
pub(super) struct Examined {
    pub(super) inventory: Inventory,
    pub(super) machine: Machine,
    /// By GPU.
    pub(super) places: Vec<Place>,
    pub(super) container: Option<String>,
    /// The fabric's, if there is one.
    pub(super) services: Option<Services>,
    /// The GPUs that the kernel module tells of, hidden ones too.
    pub(super) all_gpus: usize,
    /// `CUDA_VISIBLE_DEVICES`.
    pub(super) visible: Option<String>,
    /// Where the machine is read.
    pub(super) root: PathBuf,
    /// So many GPUs are not real.
    pub(super) simulated: Option<u8>,
    pub(super) rows: Vec<Row>,
    /// NCCL's diagnostics, if the user asks for them.
    pub(super) nccl: Option<Diagnosed>,
    /// Why nothing was tested.
    pub(super) error: Option<String>,
    /// Where verdicts are kept, if any is.
    pub(super) kept_in: Option<PathBuf>,
    /// Whether only small sizes were tested.
    pub(super) is_quick: bool,
    /// Whether all memory was to be tested.
    pub(super) is_full: bool,
}

/// How a pair came out.
pub(super) struct Row {
    /// Ordinals: who reaches, who is reached.
    pub(super) pair: [usize; 2],
    /// By test, in the order of [`Test::ALL`]; none if it did not come to that.
    pub(super) findings: [Option<Finding>; Test::ALL.len()],
    /// The speed of direct copies, and of those through the host.
    pub(super) measures: [Option<Measure>; 2],
    /// GB/s of copies through the host that p2pshim makes.
    pub(super) by_shim: Option<f64>,
    /// The rates of both stagers.
    pub(super) stagers: Stagers,
    /// GB/s of direct copies while all pairs copy.
    pub(super) at_once: Option<f64>,
    pub(super) verdict: Verdict,
    /// Further remarks.
    pub(super) remark: Option<String>,
    /// A process that could not be ended.
    pub(super) left_behind: Option<u32>,
}

impl Row {
    /// A pair of which nothing else is known.
    pub(super) fn new(pair: [usize; 2], verdict: Verdict) -> Self {
        let findings = [const { None }; Test::ALL.len()];
        let (measures, by_shim, at_once, remark, left_behind) = ([None; 2], None, None, None, None);
        let stagers = Stagers::default();
        Self { pair, findings, measures, by_shim, stagers, at_once, verdict, remark, left_behind }
    }

    /// Forgets how tests came out.
    pub(super) fn forget(&mut self) {
        self.findings = [const { None }; Test::ALL.len()];
    }

    /// Whether a test did not end.
    pub(super) fn is_hung(&self) -> bool {
        self.findings.iter().any(|finding| matches!(finding, Some(Finding::Hung(_))))
    }

    /// How a test came out; none if it did not come to that.
    pub(super) fn finding(&self, test: Test) -> Option<&Finding> {
        let found = Test::ALL.iter().zip(&self.findings).find(|(known, _)| **known == test);
        found.and_then(|(_, finding)| finding.as_ref())
    }

    /// Notes how a test came out.
    pub(super) fn set_finding(&mut self, test: Test, finding: Finding) {
        let place = Test::ALL.iter().zip(&mut self.findings).find(|(known, _)| **known == test);
        if let Some((_, place)) = place {
            *place = Some(finding);
        }
    }

    /// Adds how a further test came out to what is known.
    pub(super) fn add(&mut self, test: Test, finding: Finding) {
        self.verdict = self.verdict.clone().and(test, finding.clone());
        self.set_finding(test, finding);
    }

    /// Whether a test failed.
    pub(super) fn has_failed(&self, test: Test) -> bool {
        self.finding(test).is_some_and(Finding::is_failure)
    }

    /// Whether one of these tests failed, and no other did.
    pub(super) fn fails_only(&self, tests: &[Test]) -> bool {
        let mut failures = Test::ALL.iter().filter(|test| self.has_failed(**test)).peekable();
        failures.peek().is_some() && failures.all(|test| tests.contains(test))
    }

    /// Whether a test could not be made without which a pair is not verified.
    pub(super) fn lacks_what_is_essential(&self) -> bool {
        let untested = |test: &Test| matches!(self.finding(*test), Some(Finding::Untested(_)));
        Test::ALL.iter().any(|test| test.is_essential() && untested(test))
    }

    /// Whether data is wrong directly and through the host.
    pub(super) fn is_wrong_through_host(&self) -> bool {
        matches!(&self.verdict, Verdict::Unknown(why) if why.starts_with(THROUGH_HOST))
    }

    pub(super) fn name(&self) -> String {
        let [from, to] = self.pair;
        format!("{from}>{to}")
    }

    /// How fast a path is.
    pub(super) fn measure(&self, path: Path) -> Option<Measure> {
        let [direct, staged] = self.measures;
        match path {
            Path::Direct => direct,
            Path::Staged => staged,
        }
    }

    pub(super) fn set_measure(&mut self, path: Path, measure: Measure) {
        let [direct, staged] = &mut self.measures;
        *match path {
            Path::Direct => direct,
            Path::Staged => staged,
        } = Some(measure);
    }
}

/// The pairs, by their ordinals.
pub(super) fn names<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    rows.map(Row::name).collect::<Vec<_>>().join(" ")
}

/// Some pairs of so many GPUs, in few words.
pub(super) fn short(rows: &[&Row], devices: usize) -> String {
    const SHOWN: usize = 6;
    const FEW: usize = 4;
    if rows.len() <= FEW {
        return names(rows.iter().copied());
    }
    if rows.len() == devices * devices.saturating_sub(1) {
        return format!("all {} pairs", rows.len());
    }
    let has = |pair: [usize; 2]| rows.iter().any(|row| row.pair == pair);
    let both = rows.iter().filter(|row| row.pair[0] < row.pair[1] || !has([row.pair[1], row.pair[0]]));
    let name = |row: &&&Row| if has([row.pair[1], row.pair[0]]) { row.name().replace('>', "-") } else { row.name() };
    let names: Vec<String> = both.map(|row| name(&row)).collect();
    few(&names, SHOWN, " ")
}

/// The table's and the JSON's word for a verdict.
fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "verified",
        Verdict::NoPath => "no path",
        Verdict::Failed(_) => "FAILED",
        Verdict::Unknown(_) => "undecided",
    }
}

/// Prints the lines before the table of pairs.
fn print_head(out: &mut impl Write, examined: &Examined) -> io::Result<()> {
    let Examined { inventory, machine, simulated, .. } = examined;
    if let Some(count) = simulated {
        let gpus = if *count == 1 { "GPU" } else { "GPUs" };
        writeln!(out, "{count} simulated {gpus}: nothing here is a measurement of real ones")?;
    } else {
        let module = machine.kernel_module.as_deref().unwrap_or("of unknown version");
        writeln!(out, "NVIDIA driver      {module}")?;
    }
    writeln!(out, "CUDA, by driver    {}", inventory.driver.map_or("unknown".to_owned(), version))?;
    let runtimes: Vec<String> =
        inventory.runtimes.iter().map(|(number, name)| format!("{} ({name})", version(*number))).collect();
    writeln!(
        out,
        "CUDA runtimes      {}",
        list(&runtimes, ", ", "none on the library path; programs may contain their own")
    )?;
    let width = inventory.devices.iter().map(|device| device.name.len()).max().unwrap_or_default();
    for (ordinal, Device { bus_id, uuid, name }) in inventory.devices.iter().enumerate() {
        writeln!(out, "GPU {ordinal:<15}{name:width$}  {bus_id}  {uuid}")?;
    }
    let visible = examined.visible.as_deref().filter(|_| simulated.is_none());
    if let Some(numbering) = numbering(&inventory.devices, visible) {
        writeln!(out, "numbers of GPUs    {numbering}")?;
    }
    print_matrix(out, examined)?;
    writeln!(out)
}

/// The tests that have a column, with its head, by group.
const GROUPS: [(&str, &[(Test, &str)]); 4] = [
    ("copy", &[(Test::Copies, "copies"), (Test::Pools, "pools"), (Test::Graphs, "graphs")]),
    (
        "kernel",
        &[
            (Test::Loads, "loads"),
            (Test::Stores, "stores"),
            (Test::Atomics, "atomics"),
            (Test::Flags, "flags"),
            (Test::Pull, "pull"),
            (Test::Ll, "LL"),
            (Test::Ll128, "LL128"),
        ],
    ),
    ("between processes", &[(Test::Ipc, "IPC"), (Test::Vmm, "VMM"), (Test::IpcKernels, "kernels")]),
    ("all", &[(Test::AllMemory, "memory")]),
];
/// The tests that only `--full` makes.
pub(super) const OF_FULL: [Test; 6] =
    [Test::Graphs, Test::Pull, Test::Ll, Test::Ll128, Test::IpcKernels, Test::AllMemory];

/// The columns of tests, with the names of their groups, at a level.
fn columns(is_full: bool) -> Vec<(&'static str, Vec<(Test, &'static str)>)> {
    let is_shown = |(test, _): &&(Test, &str)| is_full || !OF_FULL.contains(test);
    let groups =
        GROUPS.iter().map(|(group, tests)| (*group, tests.iter().filter(is_shown).copied().collect::<Vec<_>>()));
    groups.filter(|(_, tests)| !tests.is_empty()).collect()
}

/// How wide the table of pairs is.
fn width_of_table(is_full: bool) -> usize {
    const BESIDES: usize = 62;
    BESIDES + columns(is_full).iter().map(|(_, tests)| tests.len() * 10).sum::<usize>()
}

/// Prints the table of pairs.
fn print_table(out: &mut impl Write, rows: &[Row], is_full: bool) -> io::Result<()> {
    let columns = columns(is_full);
    let groups = columns.iter().map(|(group, tests)| format!("{group:width$}", width = tests.len() * 10));
    let groups: String = groups.collect();
    writeln!(out, "{:7}  {groups}{:10}  {:>23}  {:>16}", "", "", "GB/s", "4 bytes, us")?;
    let tests = || columns.iter().flat_map(|(_, tests)| tests);
    let heads: String = tests().map(|(_, head)| format!("{head:8}  ")).collect();
    writeln!(
        out,
        "{:7}  {heads}{:10}  {:>6}  {:>6}  {:>7}  {:>7}  {:>7}",
        "pair", "verdict", "direct", "staged", "p2pshim", "direct", "staged"
    )?;
    rows.iter().try_for_each(|row| {
        let cell = |test: Test| format!("{:8}  ", row.finding(test).map_or("-", Finding::word));
        print_row(out, row, &tests().map(|(test, _)| cell(*test)).collect::<String>())
    })
}

/// Prints that table for a terminal that it does not fit: the tests in one column, and as many columns as there is room for.
fn print_narrow_table(out: &mut impl Write, rows: &[Row], width: usize) -> io::Result<()> {
    const WIDTHS: [usize; 8] = [7, 10, 12, 6, 6, 7, 7, 7];
    const HEADS: [[&str; 8]; 2] = [
        ["", "", "", "", "", "GB/s", "4 bytes", "us"],
        ["pair", "verdict", "tests", "direct", "staged", "p2pshim", "direct", "staged"],
    ];
    let mut line = |cells: [&str; 8]| {
        let mut text = String::new();
        for (place, (cell, of_cell)) in cells.into_iter().zip(WIDTHS).enumerate() {
            if text.len() + of_cell > width {
                break;
            }
            let _ = if place < 3 { write!(text, "{cell:of_cell$}  ") } else { write!(text, "{cell:>of_cell$}  ") };
        }
        writeln!(out, "{}", text.trim_end())
    };
    HEADS.into_iter().try_for_each(&mut line)?;
    for row in rows {
        let words: Vec<&str> = row.findings.iter().flatten().map(Finding::word).collect();
        let worst = ["wrong", "hung", "untested", "right"].into_iter().find(|word| words.contains(word));
        let tests = worst
            .map_or("-".to_owned(), |worst| format!("{} {worst}", words.iter().filter(|word| **word == worst).count()));
        let number = |number: Option<f64>| number.map_or("-".to_owned(), |number| format!("{number:.1}"));
        let [direct, staged] = row.measures.map(|measure| number(measure.map(|measure| measure.speed)));
        let [direct_us, staged_us] = row.measures.map(|measure| number(measure.map(|measure| measure.latency)));
        let (name, by_shim) = (row.name(), number(row.by_shim));
        line([&name, word(&row.verdict), &tests, &direct, &staged, &by_shim, &direct_us, &staged_us])?;
    }
    Ok(())
}

/// In what the ordinals of GPUs are not those of nvidia-smi; none if they are.
fn numbering(devices: &[Device], visible: Option<&str>) -> Option<String> {
    if let Some(visible) = visible {
        return Some(format!(
            "CUDA's, after CUDA_VISIBLE_DEVICES={}, which hides and renumbers; addresses tell which they are",
            Escaped(visible)
        ));
    }
    let is_by_address = devices.is_sorted_by_key(|device| device.bus_id.to_ascii_lowercase());
    (!is_by_address)
        .then(|| "CUDA's, the fastest first; with CUDA_DEVICE_ORDER=PCI_BUS_ID they are those of nvidia-smi".to_owned())
}

/// Prints the driver's attributes of all pairs: the row's GPU reaches the column's.
fn print_matrix(out: &mut impl Write, examined: &Examined) -> io::Result<()> {
    let Examined { inventory, .. } = examined;
    let count = inventory.devices.len();
    if count < 2 {
        return Ok(());
    }
    let columns =
        |cell: &dyn Fn(usize) -> String| (0..count).map(|to| format!("  {:>6}", cell(to))).collect::<String>();
    writeln!(out, "\nPeer access     {}", columns(&|to| format!("GPU {to}")))?;
    let mut joints = Vec::new();
    for from in 0..count {
        let mut cells = String::new();
        for pair in (0..count).map(|to| [from, to]) {
            let word = if pair == [from; 2] {
                "-"
            } else if inventory.has_path(pair) {
                let joint = examined.joint(pair);
                if !joints.contains(&joint) {
                    joints.push(joint);
                }
                joint.word()
            } else {
                "no"
            };
            let _ = write!(cells, "  {word:>6}");
        }
        writeln!(out, "GPU {from:<12}{cells}")?;
    }
    let legend: Vec<String> = joints.iter().map(|joint| format!("{}: {}", joint.word(), joint.explained())).collect();
    if !legend.is_empty() {
        writeln!(out, "{}", legend.join("; "))?;
    }
    print_disagreement(out, inventory)?;
    let (mut atomics, mut arrays) = (Vec::new(), Vec::new());
    for ([from, to], attributes) in &inventory.paths {
        let name = || format!("{from}>{to}");
        atomics.extend(attributes.filter(|attributes| attributes.atomics).map(|_| name()));
        arrays.extend(attributes.filter(|attributes| attributes.arrays).map(|_| name()));
    }
    for (title, pairs) in [("native atomics", atomics), ("access to arrays", arrays)] {
        let is_all = pairs.len() == inventory.paths.len() && !pairs.is_empty();
        let pairs = if is_all { "all that have a path".to_owned() } else { list(&pairs, " ", "none") };
        writeln!(out, "{title:17}  {pairs}")?;
    }
    Ok(())
}

/// Prints the statuses of NVML that are not what CUDA says.
fn print_disagreement(out: &mut impl Write, inventory: &Inventory) -> io::Result<()> {
    for (pair @ [from, to], statuses) in &inventory.statuses {
        let ([Some(reads), Some(writes), ..], has_path) = (*statuses, inventory.has_path(*pair)) else { continue };
        if has_path != (reads == 0 && writes == 0) {
            let (reads, writes, cuda) =
                (status_word(reads), status_word(writes), if has_path { "a path" } else { "none" });
            writeln!(out, "NVML disagrees     {from}>{to}: reads {reads}, writes {writes}; CUDA has {cuda}")?;
        }
    }
    Ok(())
}

fn list(items: &[String], between: &str, none: &str) -> String {
    if items.is_empty() { none.to_owned() } else { items.join(between) }
}

/// A line of the table.
fn print_row(out: &mut impl Write, row: &Row, tests: &str) -> io::Result<()> {
    let number = |number: Option<f64>| number.map_or("-".to_owned(), |number| format!("{number:.1}"));
    let [direct, staged] = row.measures.map(|measure| number(measure.map(|measure| measure.speed)));
    let by_shim = number(row.by_shim);
    let [direct_us, staged_us] = row.measures.map(|measure| number(measure.map(|measure| measure.latency)));
    writeln!(
        out,
        "{:7}  {tests}{:10}  {direct:>6}  {staged:>6}  {by_shim:>7}  {direct_us:>7}  {staged_us:>7}",
        row.name(),
        word(&row.verdict)
    )
}

/// How a test of all pairs at once came out: the first pair and words; none if it was not to be made.
fn at_once(rows: &[Row], test: Test) -> Option<(&Row, Vec<String>)> {
    let tested: Vec<(&Row, &Finding)> = rows.iter().filter_map(|row| Some((row, row.finding(test)?))).collect();
    let with = |word: &str| tested.iter().filter(|(_, finding)| finding.word() == word).collect::<Vec<_>>();
    let mut parts = Vec::new();
    for word in ["wrong", "hung"] {
        let names: Vec<String> = with(word).iter().map(|(row, _)| row.name()).collect();
        if !names.is_empty() {
            parts.push(format!("{word} on {}", names.join(" ")));
        }
    }
    if let ([(_, finding), ..], true) = (with("untested").as_slice(), parts.is_empty()) {
        parts.push(format!("untested: {}", finding.detail().unwrap_or_default()));
    }
    let &(first, _) = tested.first()?;
    if parts.is_empty() {
        parts.push("right".to_owned());
    }
    Some((first, parts))
}

/// How copies of all pairs at once, and kernels, came out, in a line each.
fn print_at_once(out: &mut impl Write, rows: &[Row]) -> io::Result<()> {
    let Some((first, mut parts)) = at_once(rows, Test::AllPairs) else { return Ok(()) };
    let tested = || rows.iter().filter(|row| row.finding(Test::AllPairs).is_some());
    let sum = |speed: fn(&Row) -> Option<f64>| tested().map(speed).sum::<Option<f64>>();
    let alone = sum(|row| row.measure(Path::Direct).map(|measure| measure.speed));
    if let (Some(at_once), Some(alone)) = (sum(|row| row.at_once), alone) {
        let slowest = tested().filter_map(|row| row.at_once.map(|speed| (row.name(), speed)));
        let (name, speed) = slowest.min_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or((first.name(), 0.0));
        parts.push(format!(
            "{at_once:.1} GB/s in all, {alone:.1} if each were as fast as alone; the slowest is {name}, {speed:.1}"
        ));
    }
    writeln!(out, "\n{:17}  {}", "all pairs at once", parts.join("; "))?;
    for (test, title) in [(Test::AllToAll, "all-to-all"), (Test::AllReduce, "all-reduce")] {
        if let Some((_, parts)) = at_once(rows, test) {
            writeln!(out, "{title:17}  {}", parts.join("; "))?;
        }
    }
    Ok(())
}

/// Names the pairs that LL128 was not tested on, which has nothing to do with the path.
fn print_unused(out: &mut impl Write, rows: &[Row]) -> io::Result<()> {
    let has_ll = |row: &&Row| matches!(row.finding(Test::Ll), Some(Finding::Right | Finding::Wrong(_)));
    let unused = rows.iter().filter(has_ll).filter(|row| row.finding(Test::Ll128).is_none());
    let names: Vec<String> = unused.map(Row::name).collect();
    if names.is_empty() {
        return Ok(());
    }
    let why = "not tested: NCCL uses it only over NVLink, on GPUs of compute capability 7.0 or higher";
    writeln!(out, "\n{:17}  {why}: {}", "LL128", names.join(" "))
}

/// Prints NCCL's diagnostics, if the user asks for them.
fn print_nccl(out: &mut impl Write, examined: &Examined) -> io::Result<()> {
    let Some(Diagnosed { library, version, lines, error }) = &examined.nccl else { return Ok(()) };
    let mut title = format!("NCCL {}", version.as_deref().unwrap_or_default());
    writeln!(out)?;
    for line in lines {
        writeln!(out, "{title:17}  {line}")?;
        title.clear();
    }
    match (error, library.as_str()) {
        (None, _) => Ok(()),
        (Some(why), "") => writeln!(out, "{title:17}  {why}"),
        (Some(why), library) => writeln!(out, "{title:17}  {why} ({library})"),
    }
}

/// Prints how fast either stages copies, if that was measured.
fn print_stagers(out: &mut impl Write, rows: &[Row]) -> io::Result<()> {
    let Some(stagers) = rows.iter().map(|row| &row.stagers).find(|stagers| !stagers.is_empty()) else { return Ok(()) };
    let cell = |text: &str| format!("  {text:>10}");
    let head: String = Stagers::words().iter().map(|word| cell(&format!("{word} MiB"))).collect();
    writeln!(out, "\n{:26}{head}", "staged, GB/s of each link")?;
    for (are_all_busy, links) in [(false, "one link"), (true, "all links at once")] {
        let rates = stagers.rates(are_all_busy);
        let cells = |rate: fn(&Rates) -> f64| -> String {
            rates
                .iter()
                .map(|rates| cell(&rates.as_ref().map_or("-".to_owned(), |rates| format!("{:.1}", rate(rates)))))
                .collect()
        };
        writeln!(out, "{:26}{}", format!("{links}, driver"), cells(|rates| rates.driver))?;
        writeln!(out, "{:26}{}", format!("{links}, p2pshim"), cells(|rates| rates.shim))?;
    }
    Ok(())
}

/// Prints the details of pairs that are not verified, those once that several pairs share.
fn print_details(out: &mut impl Write, examined: &Examined) -> io::Result<()> {
    if examined.rows.is_empty() {
        let count = examined.inventory.devices.len();
        writeln!(out, "no pair: peer access needs two GPUs, and CUDA reports {count}")?;
    }
    let mut all: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for row in &examined.rows {
        let details = Test::ALL.iter().zip(&row.findings).filter_map(|(test, finding)| {
            // The line about all pairs says it once.
            let finding = finding
                .as_ref()
                .filter(|finding| !Test::AT_ONCE.contains(test) || !matches!(finding, Finding::Untested(_)))?;
            Some(format!("{} {}: {}", test.name(), finding.word(), finding.detail()?))
        });
        let mut details: Vec<String> = details.collect();
        let is_told = row.lacks_what_is_essential();
        if let (Verdict::Unknown(why), false) = (&row.verdict, is_told) {
            details.push(why.clone());
        }
        if let Verdict::Failed(why) = &row.verdict {
            if details.is_empty() {
                details.push(why.clone());
            }
            details.extend(affected(row).map(str::to_owned));
        }
        details.extend(row.remark.clone());
        if let Some(process) = row.left_behind {
            details.push(format!(
                "Process {process} was killed but does not end: it is stuck in the driver. The GPUs may need a reboot of the \
                 machine"
            ));
        }
        match all.iter_mut().find(|(known, _)| *known == details) {
            _ if details.is_empty() => {}
            Some((_, names)) => names.push(row.name()),
            None => all.push((details, vec![row.name()])),
        }
    }
    for (details, names) in all {
        writeln!(out)?;
        let mut name = names.join(" ");
        if let [_, _, ..] = names.as_slice() {
            writeln!(out, "{name}")?;
            name.clear();
        }
        for detail in details {
            writeln!(out, "{name:7}  {detail}")?;
            name.clear();
        }
    }
    Ok(())
}

/// Which programs are affected by a pair that failed, if not all that use it.
fn affected(row: &Row) -> Option<&'static str> {
    if row.fails_only(&Test::BETWEEN_PROCESSES) {
        Some(
            "Within a process all is right: only programs are affected whose processes share GPU memory, such as training with one \
             process for each GPU",
        )
    } else if row.fails_only(&[Test::AllMemory]) {
        Some("The first part of memory is right: only programs are affected that use more of it")
    } else if row.fails_only(&Test::OF_NCCL) {
        Some("Other accesses of kernels are right: only NCCL's protocols of that name are affected")
    } else if row.fails_only(&[Test::AllToAll]) {
        Some("Each pair alone is right: only programs are affected whose kernels store from several GPUs at once")
    } else if row.fails_only(&[Test::AllPairs]) {
        Some("Each pair alone is right: only programs are affected that copy between several pairs at once")
    } else if row.finding(Test::Copies) == Some(&Finding::Right) {
        Some("Copies are right: only programs whose kernels access peer memory are affected")
    } else {
        None
    }
}

/// Prints the machine's account of itself.
pub(super) fn print_machine(out: &mut impl Write, examined: &Examined) -> io::Result<()> {
    let Examined { machine, places, container, .. } = examined;
    writeln!(out)?;
    writeln!(out, "kernel parameters  {}", list(&machine.parameters, " ", "none about IOMMU or ACS"))?;
    if !machine.registry.is_empty() {
        writeln!(out, "driver's registry  {}", machine.registry.join(" "))?;
    }
    writeln!(out, "IOMMU              {}", list(&machine.iommus, " ", "none in use"))?;
    writeln!(out, "virtual machine    {}", machine.hypervisor.as_deref().unwrap_or("no"))?;
    writeln!(out, "container          {}", container.as_deref().unwrap_or("none that shows"))?;
    if let Some(is_on) = examined.inventory.is_confidential {
        writeln!(out, "confidential mode  {}", if is_on { "on" } else { "off" })?;
    }
    for (ordinal, gpu) in machine.gpus.iter().enumerate() {
        let mut parts = vec![place(gpu)];
        if let Some((place, link)) = places.get(ordinal).and_then(|place| Some((place, place.link()?))) {
            let most = place.most().filter(|most| *most != link).map(|most| format!(" of {most}"));
            parts.push(format!("PCIe {link}{}", most.unwrap_or_default()));
        }
        parts.extend(places.get(ordinal).and_then(|place| place.node).map(|node| format!("near memory node {node}")));
        if let Some(known) = examined.known().get(ordinal) {
            parts.extend(known.bar1.map(|bytes| format!("BAR1 {} MiB", bytes >> 20)));
            parts.extend(known.is_mig.map(|is_on| format!("MIG {}", if is_on { "on" } else { "off" })));
            parts.extend(known.links.as_ref().map(|links| format!("NVLinks up: {}", links.up)));
            parts.extend(known.c2c.filter(|&count| count > 0).map(|count| format!("C2C links: {count}")));
            parts.extend((known.virtualization == Some(2)).then(|| "vGPU".to_owned()));
            parts.extend(known.fabric.as_ref().filter(|fabric| fabric.state > 0).map(|fabric| {
                let trouble = fabric.trouble().unwrap_or_else(|| "completed".to_owned());
                let cluster = fabric.cluster.as_ref().map_or(String::new(), |uuid| format!(", cluster {uuid}"));
                format!("NVLink fabric {trouble}, clique {}{cluster}", fabric.clique)
            }));
        }
        parts.extend(gpu.has_display.then(|| "a display is attached".to_owned()));
        writeln!(out, "GPU {ordinal:<15}{}", parts.join("; "))?;
    }
    if let Some(Services { fabric_manager, imex, channels }) = &examined.services {
        let runs = |is_running: bool| if is_running { "runs" } else { "is not seen" };
        writeln!(
            out,
            "NVLink fabric      nvidia-fabricmanager {}; nvidia-imex {}; IMEX channels: {}",
            runs(*fabric_manager),
            runs(*imex),
            list(channels, " ", "none")
        )?;
    }
    let mut ports: Vec<&Port> = places.iter().flat_map(|place| &place.ports).collect();
    ports.sort_by_key(|port| &port.address);
    ports.dedup_by_key(|port| &port.address);
    for Port { address, errors: [corrected, not_fatal, fatal], .. } in ports.iter().filter(|port| port.errors != [0; 3])
    {
        writeln!(out, "PCIe errors        {address}: {corrected} corrected, {not_fatal} not fatal, {fatal} fatal")?;
    }
    print_expected(out, examined)?;
    for Fault { line, count, .. } in &machine.faults {
        writeln!(out, "kernel log         {line} ({count} such)")?;
    }
    Ok(())
}

/// Prints the speeds that pairs should have, beside those that they have.
fn print_expected(out: &mut impl Write, examined: &Examined) -> io::Result<()> {
    let paths = examined.paths();
    let mut all: Vec<(String, Vec<&Row>)> = Vec::new();
    for row in &examined.rows {
        let Some(expected) = paths.expected(row) else { continue };
        let text = format!("{:.1} by {}{}", expected.speed, expected.by, expected.why);
        match all.iter_mut().find(|(known, _)| *known == text) {
            Some((_, rows)) => rows.push(row),
            None => all.push((text, vec![row])),
        }
    }
    for (text, rows) in all {
        let names: Vec<String> = rows.iter().map(|row| row.name()).collect();
        let names = if names.len() == examined.rows.len() { "all pairs".to_owned() } else { names.join(" ") };
        let speeds = rows.iter().filter_map(|row| row.measure(Path::Direct)).map(|measure| measure.speed);
        let ends = speeds.fold([f64::INFINITY, 0.0], |[least, most], speed| [least.min(speed), most.max(speed)]);
        let measured = match ends {
            [_, 0.0] => "not measured".to_owned(),
            [least, most] => format!("measured {least:.1} to {most:.1}"),
        };
        writeln!(out, "expected, GB/s     {text}; {measured}: {names}")?;
    }
    Ok(())
}

/// Prints what is known though nothing was tested.
pub(super) fn print_untested(out: &mut impl Write, examined: &Examined) -> io::Result<()> {
    for text in examined.advice() {
        writeln!(out, "{}", wrapped(&text, Some(WIDTH - 4), ""))?;
    }
    print_machine(out, examined)
}

/// Prints the verdict and the advice: they come first.
pub(super) fn print_conclusion(out: &mut impl Write, examined: &Examined, width: Option<usize>) -> io::Result<()> {
    let verdict = format!("Verdict: {}.", examined.summary());
    let width = width.unwrap_or(WIDTH).min(WIDTH - 4);
    let of_full = examined.of_full().map(str::to_owned);
    for text in std::iter::once(verdict).chain(examined.advice()).chain(of_full) {
        writeln!(out, "{}\n", wrapped(&text, Some(width), ""))?;
    }
    if let Some(folder) = &examined.kept_in {
        // Without a verdict on kernels `full` is not satisfied.
        let who = if examined.is_quick { "p2pshim" } else { "P2PSHIM_VERIFY=full" };
        writeln!(out, "{who} takes these verdicts from {} until the next boot.\n", folder.display())?;
    }
    Ok(())
}

/// Prints the findings, in so many columns if there is a limit.
pub(super) fn print_findings(out: &mut impl Write, examined: &Examined, width: Option<usize>) -> io::Result<()> {
    let Examined { rows, is_full, .. } = examined;
    print_head(out, examined)?;
    match width.filter(|&width| width < width_of_table(*is_full)) {
        Some(width) => print_narrow_table(out, rows, width)?,
        None => print_table(out, rows, *is_full)?,
    }
    print_at_once(out, rows)?;
    print_unused(out, rows)?;
    print_nccl(out, examined)?;
    print_details(out, examined)?;
    print_stagers(out, rows)
}

/// All tables and texts, in lines that fit.
pub(super) fn print(out: &mut impl Write, examined: &Examined) -> io::Result<()> {
    let (width, mut text) = (report::width(), Vec::new());
    print_conclusion(&mut text, examined, width)?;
    print_findings(&mut text, examined, width)?;
    print_machine(&mut text, examined)?;
    String::from_utf8_lossy(&text).lines().try_for_each(|line| writeln!(out, "{}", fitting(line, width)))
}

/// A line in lines that fit: what follows stands where the text behind its title does. Rows of tables stay as they are.
fn fitting(line: &str, width: Option<usize>) -> String {
    let (title, _) = line.split_once("  ").unwrap_or_default();
    let text = line.get(title.len()..).unwrap_or_default().trim_start();
    let indent = " ".repeat(line.len() - text.len());
    if text.contains("  ") { line.to_owned() } else { wrapped(line, width, &indent) }
}

/// All of it as Markdown for a bug report, without what is only the user's: UUIDs, names of host and user.
pub(super) fn print_issue(out: &mut impl Write, mut examined: Examined) -> io::Result<()> {
    examined.inventory.devices.iter_mut().for_each(|device| device.uuid.clear());
    examined.kept_in = None;
    if let Some(visible) = examined.visible.as_mut().filter(|visible| visible.contains('-')) {
        "(UUIDs)".clone_into(visible);
    }
    let variable = |name| std::env::var(name).unwrap_or_default();
    // Advice speaks of root.
    let user = Some(variable("USER")).filter(|user| user != "root").unwrap_or_default();
    let clusters = examined.known().into_iter().filter_map(|known| Some((known.fabric?.cluster?, "(UUID)")));
    let own = [(variable("HOME"), "~"), (user, "(user)"), (machine::host_name(), "(host)")];
    let names: Vec<(String, &str)> = clusters.chain(own).collect();
    let summary = match &examined.error {
        Some(why) => format!("nothing was tested: {why}"),
        None => examined.summary(),
    };
    let version = env!("CARGO_PKG_VERSION");
    let summary = without(&summary, &names);
    writeln!(out, "### `p2pshim doctor` {version}: {}\n\n{summary}.\n\n```text", examined.conclusion().word())?;
    let mut text = Vec::new();
    print_conclusion(&mut text, &examined, None)?;
    if examined.error.is_none() {
        print_findings(&mut text, &examined, None)?;
    }
    print_machine(&mut text, &examined)?;
    // A fence inside would end ours.
    let text = without(&String::from_utf8_lossy(&text).replace("```", "'''"), &names);
    text.lines().try_for_each(|line| writeln!(out, "{}", line.trim_end()))?;
    writeln!(out, "```\n\nWhat I ran, what I expected, and what happened:\n")?;
    out.flush()
}

/// A text with other words for names, where these are words of their own.
fn without(text: &str, names: &[(String, &str)]) -> String {
    let is_of_word = |letter: char| letter.is_alphanumeric() || letter == '-' || letter == '_';
    names.iter().filter(|(name, _)| name.len() > 1).fold(text.to_owned(), |text, (name, instead)| {
        let (mut changed, mut end) = (String::new(), 0);
        for (at, _) in text.match_indices(name) {
            let [before, after] = [text.get(..at), text.get(at + name.len()..)].map(Option::unwrap_or_default);
            changed += text.get(end..at).unwrap_or_default();
            end = at + name.len();
            changed += if before.ends_with(is_of_word) || after.starts_with(is_of_word) { name } else { instead };
        }
        changed + text.get(end..).unwrap_or_default()
    })
}

/// A GPU's place, in words.
fn place(gpu: &Gpu) -> String {
    let group = gpu.group.as_deref().unwrap_or("?");
    let mut text = match &gpu.translation {
        Translation::Unseen => return "not visible in /sys".to_owned(),
        Translation::None => "no IOMMU group".to_owned(),
        Translation::Identity => format!("IOMMU group {group}, addresses unchanged"),
        Translation::Translated(mode) => format!("IOMMU group {group}, addresses translated ({mode})"),
        Translation::Unknown => format!("IOMMU group {group}"),
    };
    for bridge in &gpu.bridges {
        let acs = match bridge.acs {
            Acs::Unreadable => "not readable without root",
            Acs::Absent => "none",
            Acs::Off => "lets requests pass",
            Acs::Redirects => "redirects requests",
        };
        let _ = write!(text, "; below {}, ACS {acs}", bridge.address);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fitting_lines_go_on_behind_their_title_and_rows_of_tables_stay() {
        for (line, expected) in [
            (
                "CUDA runtimes      13.0 (a), 12.9 (b), 11.8 (c)",
                "CUDA runtimes      13.0 (a), 12.9 (b),\n                   11.8 (c)",
            ),
            ("0>1      copies wrong: 4096 of 4096 bytes", "0>1      copies wrong: 4096 of 4096\n         bytes"),
            ("         IPC wrong: 4096 of 4096 bytes never", "         IPC wrong: 4096 of 4096 bytes\n         never"),
            ("a sentence that is longer than so many columns", "a sentence that is longer than so many\ncolumns"),
            (
                "GPU 0              Simulated GPU  0000:01:00.0  GPU-7",
                "GPU 0              Simulated GPU  0000:01:00.0  GPU-7",
            ),
        ] {
            assert_eq!(fitting(line, Some(40)), expected);
            assert_eq!(fitting(line, None), line);
        }
    }

    #[test]
    fn ll128_is_said_not_to_be_used_where_it_was_not_tested_and_ll_was() {
        let row = |tests: &[Test]| {
            let mut row = Row::new([0, 1], Verdict::Passed);
            tests.iter().for_each(|test| row.set_finding(*test, Finding::Right));
            row
        };
        let printed = |rows: &[Row]| {
            let mut out = Vec::new();
            print_unused(&mut out, rows).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(printed(&[row(&[Test::Copies]), row(&[Test::Ll, Test::Ll128])]), "");
        let said = printed(&[row(&[Test::Ll]), row(&[Test::Ll, Test::Ll128])]);
        assert!(said.starts_with("\nLL128              not tested: ") && said.ends_with(": 0>1\n"), "{said}");
    }

    #[test]
    fn without_names_that_are_words_of_their_own() {
        let names = [("/home/ann".to_owned(), "~"), ("ann".to_owned(), "(user)"), ("gpu7".to_owned(), "(host)")];
        let said = without("gpu7: /home/ann/nccl.so of ann, planner, gpu7-a, gpu70; gpu7", &names);
        assert_eq!(said, "(host): ~/nccl.so of (user), planner, gpu7-a, gpu70; (host)");
    }

    #[test]
    fn short_names_few_pairs_in_full_both_ways_of_more_once_and_all_by_their_number() {
        let rows = |pairs: &[[usize; 2]]| pairs.iter().map(|&pair| Row::new(pair, Verdict::NoPath)).collect::<Vec<_>>();
        let said = |pairs: &[[usize; 2]], devices| short(&rows(pairs).iter().collect::<Vec<_>>(), devices);
        assert_eq!(said(&[[0, 1], [1, 0], [2, 0]], 3), "0>1 1>0 2>0");
        assert_eq!(said(&[[0, 1], [1, 0], [2, 0], [1, 2], [2, 1]], 3), "0-1 2>0 1-2");
        let all: Vec<[usize; 2]> =
            (0..8).flat_map(|from| (0..8).map(move |to| [from, to])).filter(|[a, b]| a != b).collect();
        assert_eq!(said(&all, 8), "all 56 pairs");
        assert_eq!(said(&all[..14], 8), "0-1 0>2 0>3 0>4 0>5 0>6 and 7 more");
    }

    #[test]
    fn narrow_table_has_what_fits() {
        let mut row = Row::new([0, 1], Verdict::Failed(String::new()));
        row.set_finding(Test::Copies, Finding::Right);
        row.set_finding(Test::Ipc, Finding::Wrong(String::new()));
        row.set_measure(Path::Staged, Measure { speed: 39.6, latency: 16.0 });
        let table = |width| {
            let mut out = Vec::new();
            print_narrow_table(&mut out, std::slice::from_ref(&row), width).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(table(40).lines().last(), Some("0>1      FAILED      1 wrong"));
        assert!(table(80).ends_with("  1 wrong            -    39.6        -        -     16.0\n"), "{}", table(80));
        assert!([40, 60, 80].into_iter().all(|width| table(width).lines().all(|line| line.len() <= width)));
    }

    #[test]
    fn numbering_otherwise_than_nvidia_smi_is_said() {
        let devices = |bus_ids: &[&str]| -> Vec<Device> {
            let device = |id: &&str| Device { bus_id: (*id).to_owned(), uuid: String::new(), name: String::new() };
            bus_ids.iter().map(device).collect()
        };
        let usual = devices(&["0000:0a:00.0", "0000:0B:00.0"]);
        assert_eq!(numbering(&usual, None), None);
        assert!(numbering(&usual, Some("3,1")).unwrap().contains("CUDA_VISIBLE_DEVICES=3,1, "));
        let fastest = devices(&["0000:0b:00.0", "0000:0a:00.0"]);
        assert!(numbering(&fastest, None).unwrap().contains("CUDA_DEVICE_ORDER=PCI_BUS_ID "));
    }
}
