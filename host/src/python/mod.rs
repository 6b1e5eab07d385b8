//! The lines that a thread of CPython is at, read from the interpreter's memory: by the shim in its own process, by the command in another.
//!
//! No function of the interpreter is called, and its lock is not taken. Memory is believed only where it is of the type that it should be:
//! another thread may end the interpreter meanwhile and give the memory back. The frames of a thread change only while it runs Python.

mod layout;

use std::fmt::{self, Display, Formatter};

use layout::{Layout, REACH, WORDS, line_at};

/// The memory of a process.
pub trait Memory {
    /// Reads bytes, and says whether they were there.
    fn read(&self, from: usize, to: &mut [u8]) -> bool;

    /// The word at an address, if it is there.
    fn word(&self, from: usize) -> Option<usize> {
        let mut bytes = [0; size_of::<usize>()];
        self.read(from, &mut bytes).then(|| usize::from_le_bytes(bytes))
    }
}

/// A line of a Python program, as its traceback would name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    /// As the interpreter names it: mostly a path.
    pub file: String,
    /// Counted from 1.
    pub number: u32,
    /// With the classes and functions that it is defined in.
    pub function: String,
}

impl Display for Line {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let file = self.file.rsplit('/').next().unwrap_or_default();
        // Any text may be a file's name, but a line of the log is one line.
        let clean = |text: &str| text.replace(char::is_control, "\u{fffd}");
        write!(out, "{}:{} in {}", clean(file), self.number, clean(&self.function))
    }
}

/// Frames that are looked through for one of the program; so many further ones for others; lines that are told at most.
const FRAMES: usize = 256;
const FURTHER: usize = 32;
const LINES: usize = 3;
/// So many bytes are read of names and tables at most.
const NAME: usize = 1024;
const TABLE: usize = 1 << 20;

/// A thread's state in a process's CPython.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The address of the state.
    pub state: usize,
    /// The thread's `pthread_t`: another one means that the state is another's by now.
    pub id: usize,
}

/// A process's CPython.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Python {
    /// `Py_Version`.
    version: usize,
    /// The address of `_PyRuntime`.
    runtime: usize,
    /// The addresses of the types of code, strings and bytes.
    types: [usize; 3],
    layout: Layout,
}

impl Python {
    /// The interpreter whose `Py_Version`, address of `_PyRuntime`, and addresses of the types of code, strings and bytes are these; none if its
    /// version is not known.
    pub fn new(version: usize, runtime: usize, types: [usize; 3], memory: &dyn Memory) -> Option<Self> {
        let words = || {
            let mut words = [[0; 8]; WORDS];
            memory.read(runtime, words.as_flattened_mut()).then_some(())?;
            Some(words.map(u64::from_le_bytes))
        };
        Layout::of(version as u64, words).map(|layout| Self { version, runtime, types, layout })
    }

    /// A thread of it, as numbers in hexadecimal, for [`Self::of_note`].
    pub fn note(&self, thread: &Thread) -> String {
        let [code, text, bytes] = self.types;
        let numbers = [thread.state, thread.id, self.version, self.runtime, code, text, bytes];
        numbers.map(|number| format!("{number:x}")).join(" ")
    }

    /// The interpreter and the thread that [`Self::note`] has written, in a process with this memory.
    pub fn of_note(text: &str, memory: &dyn Memory) -> Option<(Self, Thread)> {
        let numbers = text.split(' ').map(|number| usize::from_str_radix(number, 16).ok());
        let numbers: [usize; 7] = numbers.collect::<Option<Vec<_>>>()?.try_into().ok()?;
        let [state, id, version, runtime, types @ ..] = numbers;
        Some((Self::new(version, runtime, types, memory)?, Thread { state, id }))
    }

    /// The line that a thread is at: in the innermost frame that is not of a package or of the interpreter itself. Then, of frames outside it, the
    /// next in another file each time: the innermost may be of a helper. Frames after one that cannot be read are missing.
    pub fn lines(&self, thread: &Thread, memory: &dyn Memory) -> Vec<Line> {
        let mut lines = Vec::new();
        let _ = Look { python: self, memory }.lines_of(thread, &mut lines);
        lines
    }
}

/// A search for a line.
struct Look<'a> {
    python: &'a Python,
    memory: &'a dyn Memory,
}

impl Look<'_> {
    /// Adds the lines of a thread before a frame that cannot be read.
    fn lines_of(&self, thread: &Thread, lines: &mut Vec<Line>) -> Option<()> {
        /// Frames that belong to the interpreter have owners from here on.
        const OF_INTERPRETER: u8 = 3;
        /// A reference has these besides an address, in its lowest bits.
        const TAGS: usize = 7;
        let at = &self.python.layout;
        // Else it is the state of another interpreter's thread, or memory that is another's by now.
        if self.memory.word(thread.state.checked_add(at.thread)?)? != thread.id {
            return None;
        }
        let mut next = self.memory.word(thread.state.checked_add(at.current)?)?;
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

    /// The line of an instruction, in its turn none if the code is not the program's, or is of the file of `inner`; none if that cannot be read.
    fn line_in(&self, code: usize, instruction: usize, inner: Option<&Line>) -> Option<Option<Line>> {
        let at = &self.python.layout;
        let [code_type, ..] = self.python.types;
        let object = self.object(code, code_type)?;
        let file = self.text(object.word(at.file)?)?;
        if is_others(&file) || inner.is_some_and(|inner| inner.file == file) {
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
        let [_, _, bytes] = self.python.types;
        let object = self.object(address, bytes)?;
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
        let [_, text, _] = self.python.types;
        let object = self.object(address, text)?;
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
    // The interpreter's library has the packages below it, except for Debian's.
    ["/site-packages/", "/dist-packages/", "/lib/python3."].iter().any(|of| file.contains(of))
        || file.starts_with("<frozen ")
}

/// The first bytes of an object or frame. Where the memory ends before that there are fewer.
struct Block([u8; REACH]);

impl Block {
    fn read(memory: &dyn Memory, address: usize) -> Option<Self> {
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

    /// Bytes at an address, and nothing elsewhere.
    struct At(usize, Vec<u8>);

    impl Memory for At {
        fn read(&self, from: usize, to: &mut [u8]) -> bool {
            let found = from.checked_sub(self.0).and_then(|from| self.1.get(from..from.checked_add(to.len())?));
            found.inspect(|found| to.copy_from_slice(found)).is_some()
        }
    }

    #[test]
    fn line_with_control_characters_is_one_line_without() {
        let line = Line { file: "/a/b\n\x1b[31m.py".into(), number: 7, function: "f\r".into() };
        assert_eq!(line.to_string(), "b\u{fffd}\u{fffd}[31m.py:7 in f\u{fffd}");
    }

    #[test]
    fn is_others_packages_and_frozen_modules_are() {
        let library = "/usr/lib/python3.12/threading.py";
        for file in
            ["/usr/lib/python3/dist-packages/a.py", "/v/lib/site-packages/torch/x.py", library, "<frozen runpy>"]
        {
            assert!(is_others(file), "{file}");
        }
        for file in ["/home/u/train.py", "train.py", "<string>", "/home/site-packages.py"] {
            assert!(!is_others(file), "{file}");
        }
    }

    #[test]
    fn block_read_of_nothing_is_none_and_a_page_may_be_the_last() {
        let memory = At(0x1f00, vec![7; 0x100]);
        assert!(Block::read(&memory, 0).is_none() && Block::read(&memory, usize::MAX - 7).is_none());
        assert_eq!(Block::read(&memory, 0x1f00).unwrap().byte(255), Some(7));
        assert_eq!(Block::read(&memory, 0x1f80).unwrap().byte(127), Some(7));
        assert_eq!(Block::read(&memory, 0x1f80).unwrap().byte(128), Some(0), "the next page is not there");
    }

    #[test]
    fn of_note_reads_a_note_and_nothing_damaged() {
        let (memory, thread) = (At(0, Vec::new()), Thread { state: 0x7000, id: 0x7fff_0000 });
        for version in [0x030b_0000, 0x030c_0000] {
            let python = Python::new(version, 0x9000, [1, 2, 3], &memory).unwrap();
            let note = python.note(&thread);
            assert_eq!(Python::of_note(&note, &memory), Some((python, thread.clone())));
            assert!(Python::of_note(note.rsplit_once(' ').unwrap().0, &memory).is_none(), "a number less");
            assert!(Python::of_note(&format!("{note} 8"), &memory).is_none(), "one more");
            assert!(Python::of_note(&note.replacen("7000", "x", 1), &memory).is_none());
        }
        assert!(Python::new(0x030e_0000, 0x9000, [1, 2, 3], &memory).is_none(), "its runtime cannot be read");
    }
}
