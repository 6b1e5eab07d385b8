//! Which code is where in memory, which build it is, and where its tables for unwinding are, as far as the system tells without
//! the dynamic linker's lock.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};

use p2pshim_host::races;

use crate::machine;

/// A piece of code in memory.
#[derive(Clone, Debug)]
pub(crate) struct Module {
    pub(crate) range: Range<usize>,
    /// Where the beginning of the file is in memory, if it is there.
    start: Option<usize>,
    /// Where it begins in the file.
    pub(super) offset: u64,
    pub(super) file: Vec<u8>,
    inode: u64,
    /// Whether its build was looked up.
    is_identified: bool,
}

impl Module {
    /// Whether it is the same code at the same place.
    pub(super) fn is(&self, other: &Self) -> bool {
        let all = |module: &Self| (module.range.clone(), module.offset, module.inode);
        all(self) == all(other) && self.file == other.file
    }

    /// Whether it is the C library, which threads and programs begin in.
    pub(crate) fn is_c_library(&self) -> bool {
        let name = self.file.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        [&b"libc.so"[..], b"libc-2", b"libpthread", b"ld-linux", b"ld-2"].iter().any(|begin| name.starts_with(begin))
    }

    /// Where in memory the table is that leads from its code to how that is unwound (`.eh_frame_hdr`). `read` reads memory, and says
    /// whether it was there.
    pub(crate) fn unwind_table(&self, mut read: impl FnMut(&mut [u8], usize) -> bool) -> Option<usize> {
        /// `PT_GNU_EH_FRAME`.
        const EH_FRAME: u32 = 0x6474_e550;
        let start = self.start?;
        let read = |bytes: &mut [u8], offset: u64| {
            let from = usize::try_from(offset).ok().and_then(|offset| start.checked_add(offset));
            if from.is_some_and(|from| read(bytes, from)) { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        };
        let mut first = None;
        find_segment(read, |segment| {
            let address = u64_at(segment, 0x10)?;
            match u32_at(segment, 0)? {
                LOADED => _ = first.get_or_insert(address),
                EH_FRAME => return start.checked_add(usize::try_from(address.checked_sub(first?)?).ok()?),
                _ => {}
            }
            None
        })
    }

    pub(crate) fn covers(&self, address: usize) -> bool {
        self.range.contains(&address)
    }

    /// Its kind and its version, if it is a shared runtime: the part of its file's name behind `libcudart.so.`, say.
    pub(super) fn runtime_version(&self) -> Option<(&'static [u8], &[u8])> {
        let name = self.file.rsplit(|&byte| byte == b'/').next()?;
        let runtimes: [(&[u8], &[u8]); 2] = [(b"runtime", b"libcudart.so."), (b"hip", b"libamdhip64.so.")];
        let version = |(what, beginning)| Some((what, name.strip_prefix(beginning)?));
        runtimes.into_iter().find_map(version).filter(|(_, version)| !version.is_empty())
    }

    /// Its build id, in hexadecimal; the first time only. None if the file has none, or is another one by now.
    pub(super) fn identify(&mut self) -> Option<String> {
        if std::mem::replace(&mut self.is_identified, true) {
            return None;
        }
        let path = std::ffi::OsStr::from_bytes(&self.file);
        let is_it = |metadata: &fs::Metadata| metadata.is_file() && metadata.ino() == self.inode;
        // Opened only if it is a file: a device might do something.
        fs::metadata(path).ok().filter(is_it)?;
        let file = File::open(path).ok()?;
        file.metadata().ok().filter(is_it)?;
        let id = build_id(|bytes, offset| file.read_exact_at(bytes, offset))?;
        Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// The name of a place in the code, which is the same in each run.
pub(crate) fn place(address: usize) -> Option<String> {
    let (file, offset) = located(address)?;
    Some(races::place(&file, offset))
}

/// A place in the code, with the path of its file.
pub(crate) fn path_of(address: usize) -> Option<String> {
    let (file, offset) = located(address)?;
    Some(format!("{file}+{offset:#x}"))
}

/// The first of a place and of those that it was called from, innermost first, that is in another file than the place itself; or the place.
pub(crate) fn caller_of(address: usize, callers: &[usize]) -> Option<String> {
    let (own, _) = located(address)?;
    let outer = callers.iter().find(|&&caller| located(caller).is_some_and(|(file, _)| file != own));
    path_of(outer.copied().unwrap_or(address))
}

fn located(address: usize) -> Option<(String, u64)> {
    let module = in_memory().into_iter().find(|module| module.covers(address))?;
    let offset = module.offset + address.checked_sub(module.range.start)? as u64;
    Some((String::from_utf8_lossy(&module.file).into_owned(), offset))
}

/// All code in memory that comes from files.
pub(crate) fn in_memory() -> Vec<Module> {
    listed(&fs::read("/proc/self/maps").unwrap_or_default())
}

/// The mappings of `/proc/self/maps` that can be executed.
fn listed(maps: &[u8]) -> Vec<Module> {
    let mut modules: Vec<Module> = Vec::new();
    // The last beginning of a file, and where what has it ends.
    let mut beginning: (&[u8], Range<usize>) = (b"", 0..0);
    for line in maps.split(|&byte| byte == b'\n') {
        let Some((module, is_code)) = mapping(line, &mut beginning) else { continue };
        modules.extend(is_code.then_some(module));
    }
    modules
}

/// The mapping of a line, and whether it can be executed; none if it is no file.
fn mapping<'a>(line: &'a [u8], beginning: &mut (&'a [u8], Range<usize>)) -> Option<(Module, bool)> {
    let mut words = line.splitn(6, |&byte| byte == b' ');
    let mut word = || words.next().and_then(|word| str::from_utf8(word).ok());
    let (start, end) = word()?.split_once('-')?;
    let rights = word()?;
    let offset = u64::from_str_radix(word()?, 16).ok()?;
    let inode = words.nth(1).and_then(|word| str::from_utf8(word).ok())?.parse().ok()?;
    let file = words.next()?.trim_ascii_start();
    let address = |text| usize::from_str_radix(text, 16).ok();
    let range = address(start)?..address(end)?;
    if !file.starts_with(b"/") {
        return None;
    }
    // If the code of a small file lies in its first page, that page is mapped a second time, behind the first: as far as the next of the largest pages.
    let gap = range.start.checked_sub(beginning.1.end);
    let is_again = beginning.0 == file && gap.is_some_and(|gap| gap < machine::PAGE);
    if offset == 0 && !is_again {
        *beginning = (file, range.clone());
    }
    let start = (beginning.0 == file).then_some(beginning.1.start);
    let is_code = rights.as_bytes().get(2) == Some(&b'x');
    Some((Module { range, start, offset, file: file.to_vec(), inode, is_identified: false }, is_code))
}

/// `PT_LOAD`.
const LOADED: u32 = 1;

/// The first of what `of` finds in a segment's header, in an ELF file of 64 bits, which `read` fills bytes from at an offset.
fn find_segment<T>(
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<()>,
    mut of: impl FnMut(&[u8]) -> Option<T>,
) -> Option<T> {
    const PROGRAM_HEADER_BYTES: u16 = 56;
    const MOST_HEADERS: u16 = 64;
    let mut header = [0; 64];
    read(&mut header, 0).ok()?;
    // 64 bits, little-endian.
    if !header.starts_with(b"\x7fELF\x02\x01") || u16_at(&header, 0x36)? != PROGRAM_HEADER_BYTES {
        return None;
    }
    let (first, count) = (u64_at(&header, 0x20)?, u16_at(&header, 0x38)?.min(MOST_HEADERS));
    (0..count).find_map(|number| {
        let mut segment = [0; PROGRAM_HEADER_BYTES as usize];
        let at = first.checked_add(u64::from(number) * u64::from(PROGRAM_HEADER_BYTES))?;
        read(&mut segment, at).ok()?;
        of(&segment)
    })
}

/// The build id in an ELF file of 64 bits, which `read` fills bytes from at an offset.
fn build_id(read: impl Fn(&mut [u8], u64) -> io::Result<()>) -> Option<Vec<u8>> {
    /// `PT_NOTE`.
    const NOTES: u32 = 4;
    const MOST_BYTES: u64 = 1 << 16;
    find_segment(&read, |segment| {
        let bytes = u64_at(segment, 0x20)?;
        if u32_at(segment, 0)? != NOTES || bytes > MOST_BYTES {
            return None;
        }
        let mut notes = vec![0; bytes as usize];
        read(&mut notes, u64_at(segment, 8)?).ok()?;
        in_notes(&notes, u64_at(segment, 0x30)?)
    })
}

/// The build id among notes that are aligned so.
fn in_notes(mut notes: &[u8], alignment: u64) -> Option<Vec<u8>> {
    /// `NT_GNU_BUILD_ID`.
    const BUILD_ID: u32 = 3;
    const HEADER_BYTES: usize = 12;
    let alignment = if alignment == 8 { 8 } else { 4 };
    loop {
        let [name_bytes, bytes] = [u32_at(notes, 0)? as usize, u32_at(notes, 4)? as usize];
        let kind = u32_at(notes, 8)?;
        let begin = HEADER_BYTES.checked_add(name_bytes)?.checked_next_multiple_of(alignment)?;
        let end = begin.checked_add(bytes)?;
        let (name, content) = (notes.get(HEADER_BYTES..HEADER_BYTES + name_bytes)?, notes.get(begin..end)?);
        if kind == BUILD_ID && name == b"GNU\0" && !content.is_empty() {
            return Some(content.to_vec());
        }
        notes = notes.get(end.checked_next_multiple_of(alignment)?..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_only_code_of_files() {
        let maps = b"55d0c0a00000-55d0c0a01000 r--p 00000000 fe:00 123                        /usr/bin/app\n\
            55d0c0a01000-55d0c0a03000 r-xp 00001000 fe:00 123                        /usr/bin/app with blanks (deleted)\n\
            7f0000000000-7f0000001000 r-xp 00000000 00:00 0 \n\
            7ffc00000000-7ffc00001000 r-xp 00000000 00:00 0                          [vdso]\nrubbish\n";
        let found = listed(maps);
        let [module] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(module.range, 0x55d0_c0a0_1000..0x55d0_c0a0_3000);
        assert_eq!((module.offset, module.inode), (0x1000, 123));
        assert_eq!(module.file, b"/usr/bin/app with blanks (deleted)");
        assert!(in_memory().iter().any(|module| module.covers(listed as *const () as usize)));
    }

    #[test]
    fn listed_code_in_the_first_page_of_a_file_begins_with_its_header() {
        // Linkers keep segments apart by the largest page.
        let code = 0x100_0000 + machine::PAGE;
        let maps = format!(
            "01000000-01001000 r--p 00000000 fe:00 7                        /app\n\
            {code:x}-{:x} r-xp 00000000 fe:00 7                        /app\n\
            7f0000000000-7f0000001000 r-xp 00000000 fe:00 8                        /other\n",
            code + 0x1000
        );
        let starts: Vec<_> = listed(maps.as_bytes()).iter().map(|module| module.start).collect();
        assert_eq!(starts, [Some(0x100_0000), Some(0x7f00_0000_0000)]);
    }

    #[test]
    fn runtime_version_is_in_the_file_s_name() {
        let of = |file: &str| listed(format!("10-20 r-xp 0 fe:00 1 {file}").as_bytes()).remove(0);
        assert_eq!(
            of("/usr/local/cuda/lib64/libcudart.so.12.8.90").runtime_version(),
            Some((&b"runtime"[..], &b"12.8.90"[..]))
        );
        assert_eq!(of("/opt/rocm/lib/libamdhip64.so.6").runtime_version(), Some((&b"hip"[..], &b"6"[..])));
        assert_eq!(of("/usr/lib/libcuda.so.1").runtime_version(), None);
    }

    /// The system's own readelf says the same of the C library.
    #[test]
    fn identify_is_what_readelf_says_and_only_once() {
        let mut modules = in_memory();
        let library =
            modules.iter_mut().find(|module| module.file.windows(9).any(|part| part == b"/libc.so.")).unwrap();
        let path = String::from_utf8(library.file.clone()).unwrap();
        let output = std::process::Command::new("readelf").args(["-n", &path]).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let expected = said.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).unwrap().to_owned();
        assert_eq!(library.identify(), Some(expected));
        assert_eq!(library.identify(), None);
        let mut other = Module { inode: library.inode + 1, is_identified: false, ..library.clone() };
        assert_eq!(other.identify(), None, "another file has the name by now");
    }

    #[test]
    fn build_id_of_damaged_files_is_none() {
        let mut file = fs::read("/proc/self/exe").unwrap();
        file.truncate(1 << 16);
        let of = |file: &[u8]| {
            build_id(|bytes, offset| {
                let from = usize::try_from(offset).ok().and_then(|offset| file.get(offset..));
                let from = from.and_then(|from| from.get(..bytes.len())).ok_or(io::ErrorKind::UnexpectedEof)?;
                bytes.copy_from_slice(from);
                Ok(())
            })
        };
        assert!(of(&file).is_some());
        (0..200).for_each(|length| assert_eq!(of(&file[..length]), None));
        // Whatever stands in the headers, it ends.
        for at in 0..1024 {
            for byte in [0, 1, 0x7f, 0xff] {
                let kept = std::mem::replace(&mut file[at], byte);
                of(&file);
                file[at] = kept;
            }
        }
    }
}
