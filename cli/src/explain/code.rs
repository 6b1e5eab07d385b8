//! The meaning of a code: its names, the findings that explain it, and which calls returned it on real GPUs.

use std::collections::BTreeSet;
use std::io::{self, Write};

use p2pshim_host::codes;

use super::measured::{self, Call};
use super::{Page, words};
use crate::report::failures;
use crate::report::term::capital;
use crate::tables::Rule;

/// Findings that are told in full; of more only what they are of.
const IN_FULL: usize = 4;
/// Calls that are shown where the documentation gives a code, and another one is returned.
const SHOWN: usize = 4;

/// Codes that neither a finding nor a sentence of reports is about, with their meaning.
const MEANINGS: &[(i32, &str)] = &[
    (
        47,
        "The hardware has no room for one more binding of memory to a multicast object: bindings that do not begin at a multiple of \
         the granularity need more of it. NVLink SHARP (NVLS) and symmetric memory use such objects, peer copies do not, and p2pshim \
         does not see them. To do: bind at offsets that cuMulticastGetGranularity answers, or free other objects first. With NCCL, \
         NCCL_NVLS_ENABLE=0 does without.",
    ),
    (
        209,
        "The program has no code for this GPU: neither binary code of its architecture, nor PTX that the driver \
         could compile. Programs that are older than the GPU are like that. It has nothing to do with peer access, and p2pshim cannot \
         help. `cuobjdump --list-elf --list-ptx PROGRAM` lists what there is, for which sm_NN. With CUDA_FORCE_PTX_JIT=1 the driver takes \
         PTX only: what then fails has none. If there is no PTX, the program must be built again, with -gencode \
         arch=compute_NN,code=compute_NN for a driver to come.",
    ),
    (
        227,
        "The driver cannot load this fat binary: it was made by a newer toolkit, whose format needs a newer loader. It has nothing to \
         do with peer access. To do: install a newer driver, or build the program with the driver's version of CUDA.",
    ),
    (
        917,
        "The stream is of a green context that was destroyed before it; from then on the stream takes no work, and no copy. To do: \
         destroy the streams of a green context first, or keep the context until their work is done.",
    ),
    (
        918,
        "A graph was being captured anew (cuStreamBeginRecaptureToGraph), and the calls were not those of the graph: one more, one \
         less, or of another kind. The graph is undefined from then on. To do: destroy it, and capture it afresh.",
    ),
    (
        919,
        "The fabric of the GPUs (NVLink with NVSwitch, over several nodes) was not ready in time: the fabric manager, or IMEX, is \
         still at work, or is not running. To do: `nvidia-smi -q` shows the state under Fabric; wait for Completed and start the \
         program again. CUDA_FABRIC_INIT_TIMEOUT_MS says how long CUDA waits. Copies between GPUs of one fabric need it, those over \
         PCIe do not.",
    ),
];

/// The code that a name stands for, in whichever layer.
pub(super) fn named(name: &str) -> Option<i32> {
    let is_it = |known: &Option<&str>| known.is_some_and(|known| known.eq_ignore_ascii_case(name));
    codes::rows().find(|(_, names)| names.iter().any(is_it)).map(|(code, _)| code)
}

/// The code of a number: today's, or else that of the runtime until 10.0.
pub(super) fn numbered(number: i32) -> Option<i32> {
    let is_known = codes::rows().any(|(known, _)| known == number);
    if is_known { Some(number) } else { codes::since_10_1(number) }
}

/// All names and numbers.
pub(super) fn known() -> impl Iterator<Item = String> {
    names().chain(codes::rows().map(|(code, _)| code.to_string()))
}

/// The names alone.
pub(super) fn names() -> impl Iterator<Item = String> {
    codes::rows().flat_map(|(_, names)| names.into_iter().flatten().map(str::to_owned))
}

/// A finding that explains why a code is returned.
struct Reason<'a> {
    rule: &'a Rule,
    /// Calls that returned it, on real GPUs.
    calls: Vec<Call>,
}

impl Reason<'_> {
    /// The functions that returned the code; if none of them did where it was measured, all that the finding is about.
    fn functions(&self) -> String {
        let functions: BTreeSet<&str> = self.calls.iter().map(Call::function).collect();
        if functions.is_empty() {
            return self.rule.functions.clone();
        }
        functions.into_iter().collect::<Vec<_>>().join(", ")
    }
}

/// Tells of a code that no finding explains: as the sentences of reports do, if there are such.
fn without_finding(page: &mut Page<impl Write>, code: i32) -> io::Result<()> {
    let mut is_known = false;
    for (function, why, remedy) in failures::meanings(code) {
        is_known = true;
        let text = match function {
            "" => format!("{}. {remedy}", capital(why)),
            _ => format!("From functions named …{function}: {why}. {remedy}"),
        };
        page.line("")?;
        page.text(&text)?;
    }
    if is_known {
        return Ok(());
    }
    page.line("")?;
    page.text(
        "No finding explains it. `p2pshim run --log trace PROGRAM` shows the call that returned it, and those before it.",
    )
}

/// Explains a code. Where functions are named, it is about these.
pub(super) fn print(page: &mut Page<impl Write>, rules: &[Rule], code: i32, functions: &[&str]) -> io::Result<()> {
    let names = codes::rows().find(|(known, _)| *known == code).map(|(_, names)| names);
    let names: Vec<&str> = names.into_iter().flatten().flatten().collect();
    page.line(&format!("{code}: {}", names.join(", ")))?;
    of_old_runtimes(page, code)?;
    if let Some((_, meaning)) = MEANINGS.iter().find(|(known, _)| *known == code) {
        return page.text(meaning);
    }
    if code == 0 {
        return page.text("The call succeeded. Asynchronous work may still fail: a later call returns its error.");
    }
    let number = code.to_string();
    let is_meant = |call: &Call| functions.is_empty() || functions.contains(&call.function());
    let mut reasons: Vec<Reason> =
        rules.iter().filter(|rule| concerns(rule, code)).map(|rule| Reason { rule, calls: Vec::new() }).collect();
    let (mut returned, mut other) = (0, Vec::new());
    for call in measured::calls().filter(|call| call.returned == number).filter(is_meant) {
        returned += 1;
        let Some(rule) = call.findings().find_map(|id| rules.iter().find(|rule| rule.id == id)) else {
            other.push(call);
            continue;
        };
        match reasons.iter_mut().find(|reason| reason.rule.id == rule.id) {
            Some(reason) => reason.calls.push(call),
            None => reasons.push(Reason { rule, calls: vec![call] }),
        }
    }
    reasons.retain(|reason| {
        !reason.calls.is_empty()
            || functions.is_empty()
            || functions.iter().any(|it| reason.rule.functions.contains(it))
    });
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.calls.len()));
    for reason in &reasons {
        tell(page, reason, reasons.len() <= IN_FULL)?;
    }
    if reasons.len() > IN_FULL {
        page.line("")?;
        page.text(
            "p2pshim explain ID explains a finding. Name a function beside the code, and only its findings are \
                   listed.",
        )?;
    }
    if reasons.is_empty() {
        without_finding(page, code)?;
    }
    if !other.is_empty() {
        let names: BTreeSet<&str> = other.iter().map(Call::function).collect();
        page.section("Also returned, without a finding")?;
        page.text(&names.into_iter().collect::<Vec<_>>().join(", "))?;
        page.text(&format!("For example: {}", other.first().map(Call::shown).unwrap_or_default()))?;
    }
    let differing = measured::calls().filter(|call| call.documents(&number) && call.returned != number);
    let differing: Vec<Call> = differing.filter(|call| !call.documents(call.returned)).filter(is_meant).collect();
    if !differing.is_empty() {
        page.section("Documented, but another code was returned")?;
        for call in differing.iter().take(SHOWN) {
            page.text(&format!("{}: {}", call.shown(), call.returned))?;
        }
        if let Some(more @ 1..) = differing.len().checked_sub(SHOWN) {
            page.text(&format!("and {more} more"))?;
        }
    }
    page.section("Measured")?;
    let all = measured::calls().filter(is_meant).count();
    page.text(&format!("{returned} of {all} calls returned {code} on {}. HIP was not measured.", measured::MACHINE))
}

/// Which number the code had in the runtime until 10.0, and what its number was there.
fn of_old_runtimes(page: &mut Page<impl Write>, code: i32) -> io::Result<()> {
    if let Some(number) = codes::until_10_0(code).filter(|&number| number != code) {
        page.text(&format!("The CUDA runtime until 10.0 had numbers of its own, and returned {number} for it."))?;
    }
    if let Some(other) = codes::since_10_1(code).filter(|&other| other != code) {
        let name = codes::rows().find(|(known, _)| *known == other).and_then(|(_, [runtime, ..])| runtime);
        let name = name.unwrap_or("a code without a name");
        page.text(&format!("In the runtime until 10.0, {code} was {name}, which is {other} since 10.1."))?;
    }
    Ok(())
}

/// Whether a finding is about a code: it documents it, or speaks of it.
fn concerns(rule: &Rule, code: i32) -> bool {
    let number = code.to_string();
    // Smaller numbers count other things.
    let is_said = |text: &String| {
        words(text).any(|word| (code >= 100 && word == number) || (word.contains("Error") && named(word) == Some(code)))
    };
    [rule.runtime_code, rule.driver_code].contains(&code)
        || [&rule.hardware, &rule.why, &rule.remedy].into_iter().any(is_said)
}

fn tell(page: &mut Page<impl Write>, reason: &Reason, in_full: bool) -> io::Result<()> {
    let Reason { rule, calls } = reason;
    page.section(&format!("{} ({})", rule.id, rule.severity))?;
    page.text(&reason.functions())?;
    if !in_full {
        return Ok(());
    }
    if let Some(call) = calls.first() {
        page.text(&format!("For example: {}", call.shown()))?;
    }
    page.text(&rule.why)?;
    page.text(&format!("What to do: {}", rule.remedy))
}
