//! Which line the Python program of the calling thread is at.
//!
//! One function of CPython is called, `PyGILState_GetThisThreadState`, which reads a variable of the thread. The memory that its state
//! leads to is read by the system ([`Memory`]), and believed only where it is of the type that it should be: another
//! thread may end the interpreter meanwhile and give the memory back. A thread's own frames change only while it runs Python,
//! and it is in a call of ours: so the interpreter's lock is not needed. `_Py_DumpTraceback`, which some versions export, would
//! need a descriptor, and follows pointers into memory that is gone.

mod layout;

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

use super::loader::{self, Handle, Object, Wanted};
use crate::model::Line;
use crate::os::Memory;
use layout::{Layout, REACH, WORDS, line_at};

/// Frames that are looked through for one of the program; so many further ones for others; lines that are told at most.
const FRAMES: usize = 256;
const FURTHER: usize = 32;
const LINES: usize = 3;
/// So many bytes are read of names and tables at most.
const NAME: usize = 1024;
const TABLE: usize = 1 << 20;

/// The process's CPython.
struct Python {
    /// The calling thread's state; null for a thread that has none.
    thread_state: unsafe extern "C" fn() -> *const c_void,
    /// The types of code, strings and bytes.
    code: usize,
    text: usize,
    bytes: usize,
    layout: Layout,
}

static FOUND: AtomicPtr<Python> = AtomicPtr::new(ptr::null_mut());

/// Looks for a CPython whose memory can be read, in the objects that are loaded, and says whether there is one.
pub(crate) fn search() -> bool {
    if !FOUND.load(Acquire).is_null() {
        return true;
    }
    let found = Python::find();
    if found.is_none() {
        loader::forget_error();
    }
    found.is_some_and(|python| {
        // For good. Of two threads that search at once one leaves its own unused.
        FOUND.store(Box::into_raw(Box::new(python)), Release);
        true
    })
}

/// The line that the calling thread's Python program is at, after a search: in the innermost frame that is not of a package or
/// of the interpreter itself. Then, of frames outside it, the next in another file each time: the innermost may be of a helper.
pub(crate) fn lines() -> Vec<Line> {
    let mut lines = Vec::new();
    let _ = find_lines(&mut lines);
    lines
}

fn find_lines(lines: &mut Vec<Line>) -> Option<()> {
    // SAFETY: what was stored there stays.
    let python = unsafe { FOUND.load(Acquire).as_ref() }?;
    // SAFETY: the function takes nothing, may be called by any thread at any time, and its library is pinned.
    let state = unsafe { (python.thread_state)() } as usize;
    // SAFETY: it touches nothing.
    let thread = unsafe { libc::pthread_self() } as usize;
    if state == 0 {
        return None;
    }
    Look { python, memory: Memory::new() }.lines_of(state, thread, lines)
}

impl Python {
    fn find() -> Option<Self> {
        // In the program or what it is linked with; or in a library that something has loaded for itself.
        let is_python = |object: &Object| object.file_name().starts_with(b"libpython");
        let libraries: Vec<Handle> =
            loader::loaded_objects().iter().filter(|object| is_python(object)).filter_map(Object::handle).collect();
        let find = |name: &'static CStr| {
            let everywhere = Wanted { name, version: None }.through(libc::RTLD_DEFAULT);
            everywhere.or_else(|| libraries.iter().find_map(|library| library.symbol(name)))
        };
        let thread_state = find(c"PyGILState_GetThisThreadState")?;
        let of_it = |name| find(name).filter(|&found| loader::are_together(found, thread_state));
        // Of an `unsigned long`.
        let memory = Memory::new();
        let version = memory.word(of_it(c"Py_Version")? as usize)? as u64;
        let runtime = || {
            let mut words = [[0; 8]; WORDS];
            memory.read(of_it(c"_PyRuntime")? as usize, words.as_flattened_mut()).then_some(())?;
            Some(words.map(u64::from_le_bytes))
        };
        let layout = Layout::of(version, runtime)?;
        let [code, text, bytes] = [c"PyCode_Type", c"PyUnicode_Type", c"PyBytes_Type"].map(of_it);
        let (code, text, bytes) = (code? as usize, text? as usize, bytes? as usize);
        if !loader::pin(thread_state) {
            return None;
        }
        // SAFETY: CPython's function of that name, which takes nothing and returns a pointer, in a library that stays.
        let thread_state =
            unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const c_void>(thread_state) };
        Some(Self { thread_state, code, text, bytes, layout })
    }
}

/// A search for a line.
struct Look<'a> {
    python: &'a Python,
    memory: Memory,
}

impl Look<'_> {
    /// The lines of a thread, by its state: those before a frame that cannot be read.
    fn lines_of(&self, state: usize, thread: usize, lines: &mut Vec<Line>) -> Option<()> {
        /// Frames that belong to the interpreter have owners from here on.
        const OF_INTERPRETER: u8 = 3;
        /// A reference has these besides an address, in its lowest bits.
        const TAGS: usize = 7;
        let at = &self.python.layout;
        // Else it is the state of another interpreter's thread, or memory that is another's by now.
        if self.memory.word(state.checked_add(at.thread)?)? != thread {
            return None;
        }
        let mut next = self.memory.word(state.checked_add(at.current)?)?;
        if let Some(within) = at.within {
            next = self.memory.word(next.checked_add(within)?)?;
        }
        let mut left = FRAMES;
        while let Some(further) = left.checked_sub(1) {
            left = further;
            let frame = Block::read(self.memory, next)?;
            next = frame.word(at.previous)?;
            if frame.byte(at.owner)? < OF_INTERPRETER
                && let Some(line) =
                    self.line_in(frame.word(at.code)? & !TAGS, frame.word(at.instruction)?, lines.last())?
            {
                lines.push(line);
                left = if lines.len() == LINES { 0 } else { left.min(FURTHER) };
            }
        }
        Some(())
    }

    /// The line of an instruction, in its turn none if the code is not the program's; outside `inner` none if it is of its file, or of the
    /// interpreter's library; none if that cannot be read.
    fn line_in(&self, code: usize, instruction: usize, inner: Option<&Line>) -> Option<Option<Line>> {
        let at = &self.python.layout;
        let object = self.object(code, self.python.code)?;
        let file = self.text(object.word(at.file)?)?;
        let is_known = |inner: &Line| inner.file == file || file.contains("/lib/python3.");
        if is_others(&file) || inner.is_some_and(is_known) {
            return Some(None);
        }
        let offset = instruction.checked_sub(code.checked_add(at.instructions)?)?;
        let first = i32::from_le_bytes(object.bytes(at.first_line)?);
        let number = line_at(&self.table(object.word(at.lines)?)?, first, offset)?;
        Some(Some(Line { file, number, function: self.text(object.word(at.function)?)? }))
    }

    /// The first bytes of an object, if it is of that type.
    fn object(&self, address: usize, kind: usize) -> Option<Block> {
        Block::read(self.memory, address).filter(|object| object.word(self.python.layout.kind) == Some(kind))
    }

    /// A table of lines.
    fn table(&self, address: usize) -> Option<Vec<u8>> {
        let at = &self.python.layout;
        let object = self.object(address, self.python.bytes)?;
        let size = object.word(at.size).filter(|size| *size <= TABLE)?;
        self.rest(address, &object, at.bytes, size)
    }

    /// The bytes of an object, of which the first are read already.
    fn rest(&self, address: usize, object: &Block, offset: usize, size: usize) -> Option<Vec<u8>> {
        if let Some(read) = object.0.get(offset..offset.checked_add(size)?) {
            return Some(read.to_vec());
        }
        let mut rest = vec![0; size];
        self.memory.read(address.checked_add(offset)?, &mut rest).then_some(rest)
    }

    /// The text of a string.
    fn text(&self, address: usize) -> Option<String> {
        /// In the state: whether the characters follow, and are ASCII.
        const FOLLOW: u32 = 1 << 5;
        const ASCII: u32 = 1 << 6;
        let at = &self.python.layout;
        let object = self.object(address, self.python.text)?;
        let state = u32::from_le_bytes(object.bytes(at.state)?);
        let wide = match state >> 2 & 7 {
            wide @ (1 | 2 | 4) if state & FOLLOW != 0 => wide as usize,
            _ => return None,
        };
        let offset = at.ascii + if state & ASCII != 0 { 0 } else { at.further };
        let bytes = self.rest(address, &object, offset, wide * object.word(at.length)?.min(NAME))?;
        let number = |character: &[u8]| character.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte));
        let character = |number| char::from_u32(number).filter(|char| *char != '\0').unwrap_or('\u{fffd}');
        Some(bytes.chunks(wide).map(|bytes| character(number(bytes))).collect())
    }
}

/// Whether a file is not of the program: of an installed package, or of the interpreter itself.
fn is_others(file: &str) -> bool {
    file.contains("/site-packages/") || file.contains("/dist-packages/") || file.starts_with("<frozen ")
}

/// The first bytes of an object or frame. Where the memory ends before that there are fewer.
struct Block([u8; REACH]);

impl Block {
    fn read(memory: Memory, address: usize) -> Option<Self> {
        const PAGE: usize = 4096;
        let mut block = [0; REACH];
        // The rest of its page is there, or nothing is.
        let there = (PAGE - address % PAGE).min(REACH);
        let (first, rest) = block.split_at_mut_checked(there)?;
        if !memory.read(address, first) {
            return None;
        }
        if !rest.is_empty() {
            memory.read(address.checked_add(there)?, rest);
        }
        Some(Self(block))
    }

    fn bytes<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.0.get(offset..)?.first_chunk().copied()
    }

    fn byte(&self, offset: usize) -> Option<u8> {
        self.0.get(offset).copied()
    }

    fn word(&self, offset: usize) -> Option<usize> {
        self.bytes(offset).map(usize::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_here_finds_no_python_and_no_line() {
        assert!(!search());
        assert!(lines().is_empty());
    }

    #[test]
    fn is_others_packages_and_frozen_modules_are() {
        for file in ["/usr/lib/python3/dist-packages/a.py", "/v/lib/site-packages/torch/x.py", "<frozen runpy>"] {
            assert!(is_others(file), "{file}");
        }
        for file in ["/home/u/train.py", "train.py", "<string>", "/home/site-packages.py"] {
            assert!(!is_others(file), "{file}");
        }
    }

    #[test]
    fn block_read_of_nothing_is_none() {
        let memory = Memory::new();
        assert!(Block::read(memory, 0).is_none() && Block::read(memory, usize::MAX - 7).is_none());
        let bytes = [7u8; 512];
        assert_eq!(Block::read(memory, bytes.as_ptr() as usize).unwrap().byte(255), Some(7));
    }
}
