//! Faults that a test asks for (`P2PSIM_FAULT`): what goes wrong between two devices, and which functions fail.

use crate::kernel::{Kernel, Lines, Touch};

/// A defect of direct copies, or kernels' accesses, from one device to another. Staged copies stay right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// Nothing is written.
    Drop,
    /// Some bytes are wrong: the first one of each row and of each further 4 KiB.
    Corrupt,
    /// Nothing is written the first time.
    First,
    /// The copy never ends, nor does its stream; other streams go on.
    Hang,
    /// It takes 20 ms and eight times as long as a staged copy.
    Slow,
    /// It is right, but kernels' loads and stores are lost.
    Lost,
    /// It is right, and so are kernels' loads and stores; but their atomic operations are lost.
    Atomics,
    /// It is right, and so are kernels' accesses; but what they store arrives after flags that they store later.
    Order,
    /// Only the first 12 MiB of an allocation are written, by copies of one row.
    Aperture,
    /// It is right, and so are kernels' accesses, in the first 3 GiB of the other device's memory only.
    Window,
    /// There is no path, unless the variable is set that drivers from 13.5 on are said to have for that.
    Gate,
    /// It is right, but nothing is written by those that a graph makes.
    Graph,
    /// It is right, but kernels' loads find all bits set.
    Loads,
    /// It is right, but kernels' stores are lost.
    Stores,
    /// Nothing is written to or from memory of a pool, or memory that the program mapped; kernels' accesses to it are lost.
    Pool,
    /// Nothing is written, and the kernel's log says so.
    Logged,
    /// 64 bytes more are written behind the end.
    Spill,
    /// Nothing is written by staged copies either.
    Both,
    /// Nothing is written from or to memory that came from another process by an IPC handle.
    Ipc,
    /// Such copies never end.
    IpcHang,
    /// Nothing is written from or to memory that came from another process by a file descriptor.
    Vmm,
    /// Nothing is written by a copy while another one between two other devices, or the other way round, is under way.
    Crowd,
    /// Such a copy never ends.
    CrowdHang,
    /// It is right, but takes so many milliseconds longer.
    Stall(u32),
    /// It is right, but for kernels of one kind, or where they access memory from an IPC handle.
    Of(Kernels, Touch),
}

/// The kernels that a defect is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernels {
    /// Those that store what is copied.
    Copy,
    /// Those that receive data and flags from there.
    Receive,
    /// Those that send such lines.
    Send(Lines),
    /// Those that add words.
    Reduce,
    /// Those that access memory from an IPC handle.
    OfImported,
}

/// How memory came from another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    /// By `cuIpcOpenMemHandle`.
    IpcHandle,
    /// By `cuMemImportFromShareableHandle`, or from a pool by `cuMemPoolImportFromShareableHandle`.
    Descriptor,
}

/// Bytes of an allocation that a device shows where a window is too small.
pub(crate) const APERTURE: u64 = 12 << 20;
/// Bytes of a device's memory that others reach where the window for all of it is too small.
pub(crate) const WINDOW: u64 = 3 << 30;

/// By their names in the variable.
const DEFECTS: &[(&str, Defect)] = &[
    ("drop", Defect::Drop),
    ("corrupt", Defect::Corrupt),
    ("first", Defect::First),
    ("hang", Defect::Hang),
    ("slow", Defect::Slow),
    ("lost", Defect::Lost),
    ("atomics", Defect::Atomics),
    ("order", Defect::Order),
    ("aperture", Defect::Aperture),
    ("window", Defect::Window),
    ("gate", Defect::Gate),
    ("graph", Defect::Graph),
    ("loads", Defect::Loads),
    ("stores", Defect::Stores),
    ("pool", Defect::Pool),
    ("logged", Defect::Logged),
    ("spill", Defect::Spill),
    ("both", Defect::Both),
    ("ipc", Defect::Ipc),
    ("ipc-hang", Defect::IpcHang),
    ("vmm", Defect::Vmm),
    ("crowd", Defect::Crowd),
    ("crowd-hang", Defect::CrowdHang),
    ("pull", Defect::Of(Kernels::Receive, Touch::Stale)),
    ("ll", Defect::Of(Kernels::Send(Lines::Short), Touch::Reordered)),
    ("ll-hang", Defect::Of(Kernels::Send(Lines::Short), Touch::Endless)),
    ("ll128", Defect::Of(Kernels::Send(Lines::Long), Touch::Reordered)),
    ("ipc-kernels", Defect::Of(Kernels::OfImported, Touch::Lost)),
    ("ipc-kernels-hang", Defect::Of(Kernels::OfImported, Touch::Endless)),
    ("all-to-all", Defect::Of(Kernels::Copy, Touch::Crowded)),
    ("all-reduce", Defect::Of(Kernels::Reduce, Touch::Lost)),
];

/// All kinds of faults, as the variable names them.
pub(crate) fn kinds() -> String {
    let of_pairs = DEFECTS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    format!(
        "{of_pairs} with a pair (drop:0>1, or drop:0-1), stall with a pair and a time (stall:0>1:300ms), after with a pair and a number \
         of copies (after:0>1:5000), nor code:FUNCTION:CODE@USE (code:cuMemFree_v2:700@2)"
    )
}

/// A function that fails, having done nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exported name.
    pub function: String,
    /// The code that it returns.
    pub code: u32,
    /// The first use that fails; the first of all is 1.
    pub from_use: u64,
}

/// Direct copies from one device to another that end late: the first ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stall {
    from: usize,
    to: usize,
    milliseconds: u32,
    copies: u64,
}

/// All that is to go wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    defects: Vec<(Defect, usize, usize)>,
    stalls: Vec<Stall>,
    /// From one device to another nothing is written after so many direct copies.
    afters: Vec<(usize, usize, u64)>,
    /// Functions that fail.
    pub failures: Vec<Failure>,
}

impl Faults {
    /// Reads a list such as `drop:0>1,hang:2-3,code:cuMemcpyPeerAsync:711@3`; returns the items that mean nothing.
    pub(crate) fn parse(text: &str) -> (Faults, Vec<String>) {
        let mut faults = Faults::default();
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        let bad = items.filter(|item| faults.add(item).is_none()).map(str::to_owned).collect();
        (faults, bad)
    }

    fn add(&mut self, item: &str) -> Option<()> {
        let (name, rest) = item.split_once(':')?;
        if name == "code" {
            self.failures.push(parse_failure(rest)?);
            return Some(());
        }
        if name == "stall" {
            self.stalls.extend(parse_stalls(rest)?);
            return Some(());
        }
        if name == "after" {
            let (pair, copies) = rest.split_once(':')?;
            let copies = copies.parse().ok()?;
            self.afters.extend(parse_pair(pair)?.into_iter().map(|(from, to)| (from, to, copies)));
            return Some(());
        }
        let (_, defect) = DEFECTS.iter().find(|(known, _)| *known == name)?;
        self.defects.extend(parse_pair(rest)?.into_iter().map(|(from, to)| (*defect, from, to)));
        Some(())
    }

    /// Numbers devices anew.
    pub(crate) fn renumber(&mut self, device: impl Fn(usize) -> usize) {
        let pairs = self.defects.iter_mut().map(|(_, from, to)| [from, to]);
        let stalls = self.stalls.iter_mut().map(|stall| [&mut stall.from, &mut stall.to]);
        let afters = self.afters.iter_mut().map(|(from, to, _)| [from, to]);
        pairs.chain(stalls).chain(afters).flatten().for_each(|number| *number = device(*number));
    }

    /// The defect of a direct copy, the `number`-th from one device to another.
    pub(crate) fn defect(&self, from: usize, to: usize, number: u64) -> Option<Defect> {
        let here = self.defects.iter().filter(|(_, f, t)| (*f, *t) == (from, to));
        let stall = || {
            let is_it = |stall: &&Stall| (stall.from, stall.to) == (from, to) && number <= stall.copies;
            self.stalls.iter().find(is_it).map(|stall| Defect::Stall(stall.milliseconds))
        };
        if self.afters.iter().any(|(f, t, copies)| (*f, *t) == (from, to) && number > *copies) {
            return Some(Defect::Drop);
        }
        let defect = here.map(|(defect, ..)| *defect).find_map(|defect| match defect {
            Defect::First => (number == 1).then_some(Defect::Drop),
            Defect::Gate | Defect::Graph | Defect::Loads | Defect::Stores | Defect::Pool => None,
            Defect::Lost | Defect::Atomics | Defect::Order | Defect::Of(..) => None,
            Defect::Ipc | Defect::IpcHang | Defect::Vmm => None,
            other => Some(other),
        });
        defect.or_else(stall)
    }

    /// Pairs that have no path unless a variable is set.
    pub(crate) fn gated(&self) -> impl Iterator<Item = (usize, usize)> {
        self.defects.iter().filter(|(defect, ..)| *defect == Defect::Gate).map(|(_, from, to)| (*from, *to))
    }

    /// Whether direct copies that a graph makes write nothing.
    pub(crate) fn drops_in_graphs(&self, from: usize, to: usize) -> bool {
        self.defects.contains(&(Defect::Graph, from, to))
    }

    /// Whether nothing gets from or to memory of pools, and memory that the program mapped.
    pub(crate) fn drops_granted(&self, from: usize, to: usize) -> bool {
        self.defects.contains(&(Defect::Pool, from, to))
    }

    /// Whether staged copies from one device to another write nothing.
    pub(crate) fn drops_staged(&self, from: usize, to: usize) -> bool {
        self.defects.contains(&(Defect::Both, from, to))
    }

    /// The defect of direct copies from one device to another, one end of which another process allocated.
    pub(crate) fn between_processes(&self, from: usize, to: usize, by: Means) -> Option<Defect> {
        let here = self.defects.iter().filter(|(_, f, t)| (*f, *t) == (from, to));
        here.map(|(defect, ..)| *defect).find_map(|defect| match (defect, by) {
            (Defect::Ipc, Means::IpcHandle) | (Defect::Vmm, Means::Descriptor) => Some(Defect::Drop),
            (Defect::IpcHang, Means::IpcHandle) => Some(Defect::Hang),
            _ => None,
        })
    }

    /// How much of another's memory kernels on one device reach, from its first byte on.
    pub(crate) fn window(&self, from: usize, to: usize) -> u64 {
        if self.defects.contains(&(Defect::Window, from, to)) { WINDOW } else { u64::MAX }
    }

    /// Whether loads or stores of kernels on one device are lost that go to another's memory.
    pub(crate) fn loses(&self, from: usize, to: usize, are_stores: bool) -> bool {
        let one = if are_stores { Defect::Stores } else { Defect::Loads };
        [Defect::Lost, one].iter().any(|defect| self.defects.contains(&(*defect, from, to)))
    }

    /// The fate of what kernels of one kind do on one device to another's memory, if there is a defect of theirs.
    pub(crate) fn touch(&self, from: usize, to: usize, kernel: Kernel, is_imported: bool) -> Option<Touch> {
        let here = self.defects.iter().filter(|(_, f, t)| (*f, *t) == (from, to));
        here.map(|(defect, ..)| *defect).find_map(|defect| match (defect, kernel) {
            (Defect::Atomics, Kernel::Add) => Some(Touch::Lost),
            (Defect::Order, Kernel::Send) => Some(Touch::Reordered),
            (Defect::Of(Kernels::Copy, touch), Kernel::Copy) => Some(touch),
            (Defect::Of(Kernels::Receive, touch), Kernel::Receive) => Some(touch),
            (Defect::Of(Kernels::Reduce, touch), Kernel::Reduce) => Some(touch),
            (Defect::Of(Kernels::Send(of), touch), Kernel::SendLines(lines)) if of == lines => Some(touch),
            (Defect::Of(Kernels::OfImported, touch), _) if is_imported => Some(touch),
            _ => None,
        })
    }
}

/// `0-1` both ways, `2>3` one way.
pub(crate) fn parse_pair(item: &str) -> Option<Vec<(usize, usize)>> {
    let (from, to, both) = match (item.split_once('-'), item.split_once('>')) {
        (Some((from, to)), None) => (from, to, true),
        (None, Some((from, to))) => (from, to, false),
        _ => return None,
    };
    let (from, to) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
    Some(if both { vec![(from, to), (to, from)] } else { vec![(from, to)] })
}

/// `0>1:300ms`, or `0>1:300ms@8` for the first 8 copies.
fn parse_stalls(text: &str) -> Option<Vec<Stall>> {
    let (pair, rest) = text.split_once(':')?;
    let (time, copies) = rest.split_once('@').unwrap_or((rest, "1"));
    let (milliseconds, copies) = (time.strip_suffix("ms")?.parse().ok()?, copies.parse().ok()?);
    let stall = |(from, to)| Stall { from, to, milliseconds, copies };
    Some(parse_pair(pair)?.into_iter().map(stall).collect())
}

/// `cuMemcpyPeerAsync:711@3`.
fn parse_failure(text: &str) -> Option<Failure> {
    let (function, rest) = text.split_once(':')?;
    let (code, from_use) = rest.split_once('@')?;
    let from_use = from_use.parse().ok().filter(|from_use| *from_use > 0)?;
    Some(Failure { function: function.to_owned(), code: code.parse().ok()?, from_use })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_reads_pairs_and_functions() {
        let (faults, bad) = Faults::parse("drop:0>1, hang:2-3,code:cuMemFree_v2:711@3");
        assert!(bad.is_empty());
        assert_eq!([(0, 1), (1, 0)].map(|(from, to)| faults.defect(from, to, 1)), [Some(Defect::Drop), None]);
        assert_eq!([(2, 3), (3, 2)].map(|(from, to)| faults.defect(from, to, 9)), [Some(Defect::Hang); 2]);
        let failure = Failure { function: "cuMemFree_v2".to_owned(), code: 711, from_use: 3 };
        assert_eq!(faults.failures, [failure]);
    }

    #[test]
    fn parse_returns_what_means_nothing_and_keeps_the_rest() {
        let wrong = [
            "drop",
            "drop:",
            "drop:0",
            "lose:0>1",
            "stall:0>1",
            "stall:0>1:300",
            "stall:0>1:300ms@",
            "after:0>1",
            "after:0>1:many",
            "code:cuInit",
            "code:cuInit:1",
            "code:cuInit:1@0",
            "code:a:x@1",
        ];
        for item in wrong {
            let (faults, bad) = Faults::parse(&format!("{item},slow:0>1"));
            assert_eq!(bad, [item]);
            assert_eq!(faults.defect(0, 1, 1), Some(Defect::Slow));
        }
    }

    #[test]
    fn lost_is_for_kernels_only() {
        let (faults, _) = Faults::parse("lost:0>1,slow:0>1");
        assert_eq!(faults.defect(0, 1, 1), Some(Defect::Slow));
        assert!(faults.loses(0, 1, true) && faults.loses(0, 1, false) && !faults.loses(1, 0, true));
        let (faults, bad) = Faults::parse("loads:0>1,stores:1>0");
        assert!(bad.is_empty() && faults.defect(0, 1, 1).is_none());
        assert_eq!(
            [(0, 1), (1, 0)].map(|(f, t)| [true, false].map(|are| faults.loses(f, t, are))),
            [[false, true], [true, false]]
        );
    }

    #[test]
    fn touch_is_of_the_kernels_that_the_defect_names() {
        let kernels = [
            Kernel::Copy,
            Kernel::Add,
            Kernel::Send,
            Kernel::Receive,
            Kernel::SendLines(Lines::Short),
            Kernel::SendLines(Lines::Long),
        ];
        for (fault, place, touch) in [
            ("all-to-all", 0, Touch::Crowded),
            ("atomics", 1, Touch::Lost),
            ("order", 2, Touch::Reordered),
            ("pull", 3, Touch::Stale),
            ("ll", 4, Touch::Reordered),
            ("ll-hang", 4, Touch::Endless),
            ("ll128", 5, Touch::Reordered),
        ] {
            let (faults, bad) = Faults::parse(&format!("{fault}:0>1"));
            assert!(bad.is_empty() && faults.defect(0, 1, 1).is_none() && !faults.loses(0, 1, true), "{fault}");
            for (known, kernel) in kernels.into_iter().enumerate() {
                let expected = (known == place).then_some(touch);
                assert_eq!(
                    [(0, 1), (1, 0)].map(|(f, t)| faults.touch(f, t, kernel, true)),
                    [expected, None],
                    "{fault}"
                );
            }
        }
        let (faults, _) = Faults::parse("ipc-kernels:0>1");
        assert_eq!([false, true].map(|is| faults.touch(0, 1, Kernel::Send, is)), [None, Some(Touch::Lost)]);
    }

    #[test]
    fn ipc_and_vmm_are_for_memory_that_came_from_other_processes_so() {
        const PAIRS: [(usize, usize); 4] = [(0, 1), (1, 2), (1, 0), (0, 2)];
        let (faults, _) = Faults::parse("ipc:0>1,ipc-hang:1>2,vmm:0>2");
        assert_eq!(PAIRS.map(|(from, to)| faults.defect(from, to, 1)), [None; 4]);
        let by = |means| PAIRS.map(|(from, to)| faults.between_processes(from, to, means));
        assert_eq!(by(Means::IpcHandle), [Some(Defect::Drop), Some(Defect::Hang), None, None]);
        assert_eq!(by(Means::Descriptor), [None, None, None, Some(Defect::Drop)]);
    }

    #[test]
    fn stall_is_over_after_the_copies_that_it_names() {
        let (faults, bad) = Faults::parse("stall:0>1:300ms,stall:1-2:5ms@2");
        assert!(bad.is_empty());
        let stalled = |from, to| [1, 2, 3].map(|number| faults.defect(from, to, number));
        assert_eq!(stalled(0, 1), [Some(Defect::Stall(300)), None, None]);
        assert_eq!(stalled(1, 0), [None; 3]);
        for (from, to) in [(1, 2), (2, 1)] {
            assert_eq!(stalled(from, to), [Some(Defect::Stall(5)), Some(Defect::Stall(5)), None]);
        }
    }

    #[test]
    fn after_begins_when_so_many_copies_were_right() {
        let (faults, bad) = Faults::parse("after:0>1:2");
        assert!(bad.is_empty());
        assert_eq!([1, 2, 3].map(|number| faults.defect(0, 1, number)), [None, None, Some(Defect::Drop)]);
        assert_eq!(faults.defect(1, 0, 9), None);
    }

    #[test]
    fn first_is_over_after_one_copy_and_leaves_room_for_others() {
        let (faults, _) = Faults::parse("first:0>1,slow:0>1");
        assert_eq!([1, 2].map(|number| faults.defect(0, 1, number)), [Some(Defect::Drop), Some(Defect::Slow)]);
    }
}
