//! Where what lies in the memory of a CPython.
//!
//! From 3.13 on an interpreter says it itself, at the start of `_PyRuntime` (`_Py_DebugOffsets`); only the order in which it says
//! it depends on the version. Of 3.11 and 3.12 it is what their headers say, for which a release has no second form on x86-64.

/// The fields that are looked for, in the order of the tables below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// In a thread's state: the current frame, or what has it, and the thread's `pthread_t`.
    pub(super) current: usize,
    pub(super) thread: usize,
    /// In a frame.
    pub(super) previous: usize,
    pub(super) code: usize,
    pub(super) instruction: usize,
    pub(super) owner: usize,
    /// In a code object.
    pub(super) file: usize,
    pub(super) function: usize,
    pub(super) lines: usize,
    pub(super) first_line: usize,
    pub(super) instructions: usize,
    /// In each object.
    pub(super) kind: usize,
    /// In a bytes object.
    pub(super) size: usize,
    pub(super) bytes: usize,
    /// In a string: its state, how many characters it has, and where they are if they are ASCII.
    pub(super) state: usize,
    pub(super) length: usize,
    pub(super) ascii: usize,
    /// How much further other characters are.
    pub(super) further: usize,
    /// Where the frame is in what the thread's state points to, if it does not point to the frame.
    pub(super) within: Option<usize>,
}

/// 64-bit words at the start of `_PyRuntime` that are read.
pub(super) const WORDS: usize = 93;
/// Nothing that is read of an object or frame lies further from its start, eight bytes before that at most.
pub(super) const REACH: usize = 256;

/// How far anything in a thread's state is.
const FAR: usize = 1 << 14;

const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");

/// By minor version: which of the words says where each thing is.
const SAID_BY: &[(u32, [usize; 17])] = &[
    (13, [23, 24, 29, 30, 31, 33, 35, 37, 38, 39, 43, 45, 65, 66, 68, 69, 70]),
    (14, [26, 27, 32, 33, 34, 36, 40, 42, 43, 44, 48, 51, 75, 76, 78, 79, 80]),
    (15, [26, 30, 40, 41, 42, 44, 48, 50, 51, 52, 56, 59, 87, 88, 90, 91, 92]),
];

/// Between a string's state and its characters, two more words if they are not ASCII; in 3.11 three.
const FURTHER: usize = 16;

impl Layout {
    /// The layout of a version, as `Py_Version` has it; `words` reads the start of `_PyRuntime`. None of a version that is not known,
    /// and of free-threaded builds, whose instructions are elsewhere.
    pub(super) fn of(version: u64, words: impl FnOnce() -> Option<[u64; WORDS]>) -> Option<Self> {
        let [major, minor] = [version >> 24 & 0xff, version >> 16 & 0xff];
        let layout = match (major, minor) {
            (3, 11) => Self::new([56, 152, 48, 32, 56, 69, 112, 128, 136, 72, 184, 8, 16, 32, 32, 16, 48], 24, Some(8)),
            (3, 12) => {
                Self::new([56, 136, 8, 0, 56, 70, 112, 128, 136, 68, 192, 8, 16, 32, 32, 16, 40], FURTHER, Some(0))
            }
            (3, _) => {
                let (_, said_by) = SAID_BY.iter().find(|(known, _)| u64::from(*known) == minor)?;
                let words = words()?;
                let [cookie, own, free_threaded, ..] = words;
                if cookie != COOKIE || own >> 16 != version >> 16 || free_threaded != 0 {
                    return None;
                }
                let mut said = [0; 17];
                for (to, &from) in said.iter_mut().zip(said_by) {
                    *to = usize::try_from(*words.get(from)?).ok()?;
                }
                Self::new(said, FURTHER, None)
            }
            _ => return None,
        };
        layout.is_sound().then_some(layout)
    }

    const fn new(at: [usize; 17], further: usize, within: Option<usize>) -> Self {
        let [current, thread, previous, code, instruction, owner, rest @ ..] = at;
        let [file, function, lines, first_line, instructions, kind, size, bytes, state, length, ascii] = rest;
        Self {
            current,
            thread,
            previous,
            code,
            instruction,
            owner,
            file,
            function,
            lines,
            first_line,
            instructions,
            kind,
            size,
            bytes,
            state,
            length,
            ascii,
            further,
            within,
        }
    }

    /// Whether all of it can be: what is said may be of a build that is not known.
    fn is_sound(&self) -> bool {
        let near = [
            [self.previous, self.code, self.instruction, self.owner],
            [self.file, self.function, self.lines, self.first_line],
            [self.kind, self.size, self.bytes, self.state],
            [self.length, self.ascii, self.instructions, 0],
        ];
        near.as_flattened().iter().all(|&offset| offset <= REACH - 8) && self.current < FAR && self.thread < FAR
    }
}

/// Which line an instruction is of, `offset` bytes after the first of its code: by the table of the code, and the line that it
/// begins in. None if it is of no line, or the table ends before.
pub(super) fn line_at(table: &[u8], first: i32, offset: usize) -> Option<u32> {
    /// Kinds of entries that have more than columns.
    const NO_LOCATION: u8 = 15;
    const LONG: u8 = 14;
    const NO_COLUMNS: u8 = 13;
    let (mut line, mut end, mut rest) = (i64::from(first), 0, table);
    while let Some((&head, tail)) = rest.split_first() {
        let (kind, length) = (head >> 3 & 15, usize::from(head & 7) + 1);
        let known = tail.iter().position(|byte| byte & 0x80 != 0).unwrap_or(tail.len());
        let (entry, next) = tail.split_at_checked(known)?;
        line += match kind {
            LONG | NO_COLUMNS => signed(entry)?,
            11 | 12 => i64::from(kind) - 10,
            _ => 0,
        };
        // An instruction has two bytes.
        end += 2 * length;
        if offset < end {
            return u32::try_from(line).ok().filter(|_| kind != NO_LOCATION);
        }
        rest = next;
    }
    None
}

/// A number of any size: six bits a byte, the lowest first, and its sign in the lowest of all.
fn signed(bytes: &[u8]) -> Option<i64> {
    let mut number: i64 = 0;
    for (place, byte) in bytes.iter().enumerate().take(6) {
        number |= i64::from(byte & 63) << (6 * place);
        if byte & 64 == 0 {
            return Some(if number & 1 == 0 { number >> 1 } else { -(number >> 1) });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `def f():` in line 10, then lines 11 and 13, and 12 again: as CPython 3.11 compiles it.
    #[test]
    fn line_at_each_kind_of_entry_counts() {
        let table = [
            0x80 | 15 << 3,     // 1 instruction of no line
            0x80 | 10 << 3 | 1, // 2 of the first line, with columns
            0,
            0,
            0x80 | 11 << 3, // 1, a line further
            4,
            9,
            0x80 | 13 << 3, // 1, 2 lines further, without columns
            4,
            0x80 | 14 << 3 | 7, // 8, a line back, in the long form
            3,
            0,
            1,
            2,
            0x80 | 3 << 3, // 1 of the same line
            0x10,
        ];
        let line = |offset| line_at(&table, 10, offset);
        assert_eq!([line(0), line(2), line(4), line(6), line(8)], [None, Some(10), Some(10), Some(11), Some(13)]);
        assert_eq!([line(10), line(24), line(26), line(28)], [Some(12), Some(12), Some(12), None]);
        assert_eq!(line_at(&[], 1, 0), None);
        assert_eq!(line_at(&[0x80 | 14 << 3], 1, 0), None, "damaged");
    }

    #[test]
    fn signed_is_read_as_it_is_written() {
        assert_eq!([signed(&[0]), signed(&[2]), signed(&[3]), signed(&[])], [Some(0), Some(1), Some(-1), None]);
        assert_eq!(signed(&[64 | 8, 1]), Some((8 | 64) >> 1));
        assert_eq!(signed(&[64; 9]), None);
    }

    #[test]
    fn of_what_a_runtime_says_is_taken_if_it_is_of_that_version() {
        let mut words = [0; WORDS];
        (words[0], words[1]) = (COOKIE, 0x030e_0af0);
        for (number, &place) in SAID_BY[1].1.iter().enumerate() {
            words[place] = 8 * number as u64;
        }
        let layout = Layout::of(0x030e_0af0, || Some(words)).unwrap();
        assert_eq!((layout.current, layout.thread, layout.previous, layout.ascii), (0, 8, 16, 128));
        assert_eq!(Layout::of(0x030d_0000, || Some(words)), None, "another version");
        assert_eq!(Layout::of(0x0310_0000, || Some(words)), None, "not known");
        assert_eq!(Layout::of(0x030e_0000, || None), None);
        let damaged = |place: usize, word| {
            let mut words = words;
            words[place] = word;
            Layout::of(0x030e_0af0, || Some(words))
        };
        assert_eq!(damaged(0, 1), None);
        assert_eq!(damaged(2, 1), None, "free-threaded");
        assert_eq!(damaged(40, 4096), None);
        assert!(damaged(41, 4096).is_some(), "not asked for");
    }
}
