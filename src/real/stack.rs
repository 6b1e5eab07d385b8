//! Which functions of the program a call came through: the return addresses above ours on the calling thread's stack.
//!
//! NVIDIA's static runtime calls the driver out of the program's own file, so that a return address says nothing; who called the
//! runtime does. Programs are mostly built without frame pointers, so frames are found by the tables for exceptions
//! (`.eh_frame`), which gimli interprets. All that is read of stack and tables is read by the system ([`Memory`]): whatever
//! stands there, nothing can fault. Nobody's code is called, and no lock of the dynamic linker taken: which code is where the
//! system says.

use std::ffi::c_void;
use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameOffset, EndianSlice, LittleEndian, Operation, Register, RegisterRule,
    UnwindContext, UnwindContextStorage, UnwindExpression, UnwindSection, UnwindTableRow,
};
use parking_lot::Mutex;

use super::loader;
use crate::machine::{self, Entry, Registers};
use crate::os::Memory;
use crate::record::modules::{self, u32_at};

/// How many functions are found at most; those of a static runtime are some four.
pub(crate) const CALLERS: usize = 8;
/// How many of our own there may be before them.
const OWN: usize = 32;
/// Registers by their numbers in DWARF.
const STACK: Register = Register(machine::STACK);
const RETURN: Register = Register(machine::RETURN);

/// Return addresses above the function that was entered with the stack pointer `entry`, which encloses the calling one: where that
/// continues that called its caller, and so on. None if they cannot be found.
#[inline(never)]
pub(crate) fn callers(entry: usize) -> Vec<usize> {
    let registers = machine::registers();
    let mut stack = Stack { registers, is_call: false, blocks: Blocks::new(), place: None, returns_by: None };
    if let Some(callers) = Walk::again(entry, &mut stack.blocks) {
        return callers;
    }
    for _ in 0..OWN {
        // Our caller's frame ends where the address is that we return to.
        match stack.step() {
            Some(end) if end == Entry::end_of_frame(entry) => return stack.rest(entry),
            Some(end) if end <= entry => {}
            _ => break,
        }
    }
    Vec::new()
}

/// A walk that was made. A loop calls from one place of the stack again and again: if all return addresses are where they were, the callers are
/// the same ones. To see that takes 1 to 2 us, a walk 20.
struct Walk {
    entry: usize,
    /// Where on the stack each return address was.
    returns: Vec<(usize, usize)>,
    callers: Vec<usize>,
}

/// The last walks; the number of all.
static WALKS: Mutex<(Vec<Walk>, usize)> = Mutex::new((Vec::new(), 0));

impl Walk {
    const KEPT: usize = 256;

    /// The callers of a walk from that place, if they are as they were.
    fn again(entry: usize, blocks: &mut Blocks) -> Option<Vec<usize>> {
        // Where another thread looks there is a walk to make: nobody waits.
        let walks = WALKS.try_lock()?;
        let (all, _) = &*walks;
        let mut is_there = |at, address| blocks.word(at).map(machine::unsigned) == Some(address);
        let mut is_same = |walk: &Walk| walk.returns.iter().all(|&(at, address)| is_there(at, address));
        all.iter().find(|walk| walk.entry == entry && is_same(walk)).map(|walk| walk.callers.clone())
    }

    fn keep(self) {
        let Some(mut walks) = WALKS.try_lock() else { return };
        let (all, count) = &mut *walks;
        if all.iter().any(|it| it.entry == self.entry && it.returns == self.returns) {
            return;
        }
        match all.get_mut(*count % Self::KEPT) {
            Some(oldest) => *oldest = self,
            None => all.push(self),
        }
        *count += 1;
    }
}

/// A thread's stack, from the frame on that the registers belong to.
struct Stack {
    registers: Registers,
    /// Whether the frame's function is in a call: then that lies before the address.
    is_call: bool,
    blocks: Blocks,
    /// Where the last frame's function is.
    place: Option<Place>,
    /// Where on the stack the address was by which the last frame returns.
    returns_by: Option<usize>,
}

/// A piece of code, and where the table for its unwinding is.
#[derive(Clone)]
struct Place {
    code: Range<usize>,
    table: usize,
    is_c_library: bool,
}

impl Stack {
    /// The return addresses from here on, of a walk from `entry`.
    fn rest(mut self, entry: usize) -> Vec<usize> {
        // The first address is that of the caller whose frame this is: each says how large the next frame is.
        let first = self.returns_by.zip(self.get(RETURN));
        let (mut callers, mut returns) = (Vec::new(), first.into_iter().collect());
        // Another walk may come further than one that has lost its way.
        if self.walk(&mut callers, &mut returns).is_some() && first.is_some() {
            Walk { entry, returns, callers: callers.clone() }.keep();
        }
        callers
    }

    /// Adds callers, and each return address with its place on the stack. None if the walk loses its way, or an address is in a register only.
    fn walk(&mut self, callers: &mut Vec<usize>, returns: &mut Vec<(usize, usize)>) -> Option<()> {
        let mut are_on_stack = true;
        while callers.len() < CALLERS {
            self.step()?;
            let address = self.get(RETURN)?;
            let at = address.checked_sub(1)?;
            are_on_stack &= self.returns_by.map(|by| returns.push((by, address))).is_some();
            self.table(at)?;
            if self.place.as_ref()?.is_c_library {
                break;
            }
            // A hook of ours around an enclosing call is no place in the program.
            if !loader::is_own(at as *const c_void) {
                callers.push(address);
            }
        }
        are_on_stack.then_some(())
    }

    /// Leaves the innermost frame for the one that called it, and returns where on the stack it ends.
    fn step(&mut self) -> Option<usize> {
        let at = self.get(RETURN)?.checked_sub(self.is_call.into())?;
        let table = self.table(at)?;
        let (section, cie_bytes, start) = self.blocks.rules(table, at)?;
        let mut section = EhFrame::new(&section, LittleEndian);
        section.set_address_size(8);
        let bases = BaseAddresses::default().set_eh_frame(start as u64);
        let rules = section
            .fde_from_offset(&bases, EhFrameOffset(cie_bytes), |section, bases, offset| {
                section.cie_from_offset(bases, offset)
            })
            .ok()?;
        if rules.is_signal_trampoline() || !rules.contains(at as u64) {
            return None;
        }
        let mut context = UnwindContext::<_, InPlace>::new_in();
        let row = rules.unwind_info_for_address(&section, &bases, &mut context, at as u64).ok()?;
        let end = self.leave(&section, row)?;
        self.is_call = true;
        Some(end)
    }

    /// Sets the registers to what they are in the caller, by a row of the table.
    fn leave(&mut self, section: &Section<'_>, row: &UnwindTableRow<usize, InPlace>) -> Option<usize> {
        let end = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => self.plus(*register, *offset)?,
            CfaRule::Expression(expression) => self.value(section, expression, None)?,
        };
        // The stack grows downwards, and addresses on it are aligned: else it is none.
        if end <= self.get(STACK)? || end % size_of::<usize>() != 0 {
            return None;
        }
        self.returns_by = match row.register(RETURN) {
            Some(RegisterRule::Offset(offset)) => end.checked_add_signed(offset as isize),
            _ => None,
        };
        let mut registers = Registers::default();
        for (number, register) in (0..).map(Register).zip(&mut registers) {
            let saved = |offset: i64| end.checked_add_signed(offset as isize);
            *register = match row.register(number) {
                None | Some(RegisterRule::SameValue) if number != RETURN => self.get(number),
                Some(RegisterRule::Offset(offset)) => saved(offset).and_then(|at| self.blocks.word(at)),
                Some(RegisterRule::ValOffset(offset)) => saved(offset),
                Some(RegisterRule::Register(other)) => self.get(other),
                Some(RegisterRule::Expression(expression)) => {
                    self.value(section, &expression, Some(end)).and_then(|at| self.blocks.word(at))
                }
                _ => None,
            };
        }
        self.registers = registers;
        if let Some(stack) = self.registers.get_mut(usize::from(STACK.0)) {
            *stack = Some(end);
        }
        if let Some(address) = self.registers.get_mut(usize::from(RETURN.0)) {
            *address = address.map(machine::unsigned);
        }
        Some(end)
    }

    /// The value of an expression; as far as those go that compilers make for functions that align their stack: a register and a
    /// number, and what is stored there.
    fn value(&mut self, section: &Section<'_>, of: &UnwindExpression<usize>, first: Option<usize>) -> Option<usize> {
        let encoding = gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 1 };
        let mut operations = of.get(section).ok()?.operations(encoding);
        let mut value = first;
        while let Some(operation) = operations.next().ok()? {
            value = match operation {
                Operation::RegisterOffset { register, offset, .. } => Some(self.plus(register, offset)?),
                Operation::Deref { size: 8, space: false, .. } => Some(self.blocks.word(value?)?),
                _ => return None,
            };
        }
        value
    }

    fn get(&self, register: Register) -> Option<usize> {
        self.registers.get(usize::from(register.0)).copied().flatten()
    }

    fn plus(&self, register: Register, offset: i64) -> Option<usize> {
        self.get(register)?.checked_add_signed(offset as isize)
    }

    /// The table of the module that an address lies in.
    fn table(&mut self, at: usize) -> Option<usize> {
        /// Where walks have come by.
        static KNOWN: Mutex<Vec<Place>> = Mutex::new(Vec::new());
        if !self.place.as_ref().is_some_and(|place| place.code.contains(&at)) {
            let known = KNOWN.lock().iter().find(|place| place.code.contains(&at)).cloned();
            // A library may have gone, and another come to where it was: if a table is there still, it is of what is there.
            self.place = known.filter(|place| self.blocks.functions(place.table).is_some()).or_else(|| {
                let there = modules::in_memory();
                let module = there.iter().find(|module| module.covers(at))?;
                let table = module.unwind_table(|bytes, from| self.blocks.fill(from, bytes).is_some())?;
                let place = Place { code: module.range.clone(), table, is_c_library: module.is_c_library() };
                let mut known = KNOWN.lock();
                let is_there = |other: &Place| there.iter().any(|module| module.range == other.code);
                known.retain(|other| other.code != place.code && is_there(other));
                known.push(place.clone());
                Some(place)
            });
        }
        self.place.as_ref().map(|place| place.table)
    }
}

type Section<'a> = EhFrame<EndianSlice<'a, LittleEndian>>;

/// Room for the rules of one place in the code, without allocating: what tables ask for that compilers write.
struct InPlace;

impl UnwindContextStorage<usize> for InPlace {
    type Rules = [(Register, RegisterRule<usize>); 32];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

/// Memory that was read, a block at a time: neighbours are asked for often, and each question is a call of the system.
struct Blocks {
    memory: Memory,
    read: Vec<(usize, [u8; Self::BYTES])>,
}

impl Blocks {
    /// They lie within a page each, and so are there or not.
    const BYTES: usize = 4096;
    /// Rules of one function, at most.
    const RULES: usize = 1 << 14;

    fn new() -> Self {
        Self { memory: Memory::new(), read: Vec::new() }
    }

    /// Reads bytes, and says whether they were there.
    fn fill(&mut self, mut from: usize, mut to: &mut [u8]) -> Option<()> {
        while !to.is_empty() {
            let (start, within) = (from & !(Self::BYTES - 1), from % Self::BYTES);
            let (part, rest) = to.split_at_mut((Self::BYTES - within).min(to.len()));
            part.copy_from_slice(self.block(start)?.get(within..within + part.len())?);
            from = from.checked_add(part.len())?;
            to = rest;
        }
        Some(())
    }

    fn block(&mut self, start: usize) -> Option<&[u8; Self::BYTES]> {
        let known = self.read.iter().rposition(|(known, _)| *known == start);
        let index = match known {
            Some(index) => index,
            None => {
                let mut block = [0; Self::BYTES];
                self.memory.read(start, &mut block).then_some(())?;
                self.read.push((start, block));
                self.read.len() - 1
            }
        };
        self.read.get(index).map(|(_, block)| block)
    }

    fn word(&mut self, at: usize) -> Option<usize> {
        let mut bytes = [0; 8];
        self.fill(at, &mut bytes)?;
        Some(usize::from_le_bytes(bytes))
    }

    fn half(&mut self, at: usize) -> Option<u32> {
        let mut bytes = [0; 4];
        self.fill(at, &mut bytes)?;
        Some(u32::from_le_bytes(bytes))
    }

    /// The rules for a place in the code, by its module's table: as a section that has nothing but these and what they have in
    /// common with others (CIE), how long that is, and where the section would begin in memory for addresses in the rules to be
    /// right.
    fn rules(&mut self, table: usize, at: usize) -> Option<(Vec<u8>, usize, usize)> {
        let rules = self.find(table, at)?;
        // It says how far before its own place the other is.
        let place = rules.checked_add(4)?;
        let common = place.checked_sub(self.half(place)? as usize)?;
        let (common_bytes, bytes) = (self.length(common)?, self.length(rules)?);
        let mut section = vec![0; common_bytes + bytes];
        let (first, second) = section.split_at_mut_checked(common_bytes)?;
        self.fill(common, first)?;
        self.fill(rules, second)?;
        let pointer = (common_bytes as u32).checked_add(4)?;
        second.get_mut(4..8)?.copy_from_slice(&pointer.to_le_bytes());
        Some((section, common_bytes, rules.wrapping_sub(common_bytes)))
    }

    /// How many bytes an entry has.
    fn length(&mut self, entry: usize) -> Option<usize> {
        let bytes = self.half(entry)? as usize;
        (8..=Self::RULES).contains(&bytes).then_some(bytes + 4)
    }

    /// How many functions a table has; none if there is no table.
    fn functions(&mut self, table: usize) -> Option<u32> {
        /// Version 1, and how numbers are stored: as all linkers for this machine do. Then the address of all rules, and the count.
        const HEADER: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
        let mut header = [0; 12];
        self.fill(table, &mut header)?;
        if header.starts_with(&HEADER) { u32_at(&header, 8) } else { None }
    }

    /// Where the rules are of the last function in the table that begins at an address or before it.
    fn find(&mut self, table: usize, at: usize) -> Option<usize> {
        let count = self.functions(table)?;
        let mut entry = |index: u32| {
            let mut pair = [0; 8];
            self.fill(table.checked_add(12 + 8 * index as usize)?, &mut pair)?;
            let address = |at| Some(table.wrapping_add_signed(u32_at(&pair, at)?.cast_signed() as isize));
            Some((address(0)?, address(4)?))
        };
        // Between the last that begins before it, and the first that does not.
        let (mut low, mut high) = (0, count);
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if entry(middle)?.0 <= at { low = middle } else { high = middle }
        }
        let (begin, rules) = entry(low)?;
        (begin <= at).then_some(rules)
    }
}
