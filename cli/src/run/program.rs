//! The program to run: where it is, and whether the shim can be preloaded into it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use object::elf::FileHeader64;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, FileKind, ReadCache, ReadRef};

use crate::machine;

/// Where the C library looks if there is no `PATH`.
const USUAL_PATH: &str = "/bin:/usr/bin";

/// The file that a name stands for, as the system would find it.
pub(super) fn find(name: &OsStr, path: Option<OsString>) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|path| path.exists());
    }
    let path = path.unwrap_or_else(|| USUAL_PATH.into());
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|place| fs::metadata(place).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0))
}

/// A hindrance for the shim in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hindrance {
    /// It has no dynamic linker.
    Static,
    /// Its C library is musl.
    Musl,
    /// It gets the rights of another user.
    OtherUser,
    /// It is not for this processor's 64-bit mode.
    OtherProcessor,
}

impl Hindrance {
    /// The cause in short, after the program's name.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Static => "is a static program",
            Self::Musl => "is a program for musl",
            Self::OtherUser => "runs with the rights of another user",
            Self::OtherProcessor => concat!("is not a program for ", machine::name!()),
        }
    }

    /// The words for it, after the program's name.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Static => {
                "is a static program: LD_PRELOAD has no effect on it, and its copies are not intercepted. Link it without -static"
            }
            Self::Musl => {
                "is a program for musl: p2pshim needs glibc, is not preloaded, and none of its copies are intercepted. Run it in a \
                 container with glibc, such as Debian's"
            }
            Self::OtherUser => {
                "runs with the rights of another user (set-user-ID or set-group-ID): the dynamic linker ignores LD_PRELOAD \
                 there, so that none of its copies are seen. Run it as that user, by a copy without these bits"
            }
            Self::OtherProcessor => {
                concat!(
                    "is not a program for ",
                    machine::name!(),
                    " (a 32-bit one, say): the shim cannot be loaded there, so that none of its copies are seen"
                )
            }
        }
    }
}

/// The hindrance for the shim in the program, or in the interpreter of a script; the file is the one that it is about.
pub(super) fn hindrance(path: &Path) -> Option<(PathBuf, Hindrance)> {
    /// The kernel follows no more.
    const SCRIPTS: usize = 4;
    let mut path = path.to_owned();
    for _ in 0..SCRIPTS {
        // A file that cannot be read may still be run; then nothing is known.
        let file = File::open(&path).ok()?;
        let mut head = [0; 256];
        let length = file.read_at(&mut head, 0).ok()?;
        let head = head.get(..length).unwrap_or_default();
        if let Some(interpreter) = interpreter(head) {
            path = interpreter;
            continue;
        }
        let found = of_elf(&ReadCache::new(&file))
            .or_else(|| file.metadata().ok().filter(changes_user).map(|_| Hindrance::OtherUser))?;
        return Some((path, found));
    }
    None
}

/// The interpreter that stands after `#!`.
pub(super) fn interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?.trim_ascii();
    let name = line.split(|byte| b" \t".contains(byte)).next().filter(|name| !name.is_empty())?;
    Some(PathBuf::from(OsString::from_vec(name.to_vec())))
}

/// Whether a file runs as somebody else than who starts it.
fn changes_user(found: &Metadata) -> bool {
    const SET_USER: u32 = 0o4000;
    const SET_GROUP: u32 = 0o2010;
    // The owner of our own entry is the user that we run as.
    let Ok(own) = fs::metadata("/proc/self") else { return false };
    (found.mode() & SET_USER != 0 && found.uid() != own.uid())
        || (found.mode() & SET_GROUP == SET_GROUP && found.gid() != own.gid())
}

/// The hindrance in the headers of an ELF file; none if they show none, or it is no such file.
fn of_elf<'file>(file: impl ReadRef<'file>) -> Option<Hindrance> {
    match FileKind::parse(file).ok()? {
        FileKind::Elf64 => {}
        FileKind::Elf32 => return Some(Hindrance::OtherProcessor),
        _ => return None,
    }
    let header = FileHeader64::<Endianness>::parse(file).ok()?;
    let endian = header.endian().ok()?;
    if header.e_machine(endian) != machine::IN_ELF {
        return Some(Hindrance::OtherProcessor);
    }
    let mut segments = header.program_headers(endian, file).ok()?.iter();
    let Some(interpreter) = segments.find_map(|segment| segment.interpreter(endian, file).transpose()) else {
        return Some(Hindrance::Static);
    };
    let name = interpreter.ok()?.rsplit(|&byte| byte == b'/').next()?;
    name.starts_with(b"ld-musl-").then_some(Hindrance::Musl)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with segments of these kinds, which all lie where this interpreter's path does.
    fn elf_of(interpreter: &[u8], class: u8, machine: u16, kinds: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        // In little-endian order, as the current version has it.
        bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1]);
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32..40].copy_from_slice(&64u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&56u16.to_le_bytes());
        bytes[56..58].copy_from_slice(&(kinds.len() as u16).to_le_bytes());
        for kind in kinds {
            bytes.extend(kind.to_le_bytes());
            bytes.extend([0; 52]);
        }
        let end = bytes.len() as u64;
        for index in 0..kinds.len() {
            bytes[64 + 56 * index + 8..][..8].copy_from_slice(&end.to_le_bytes());
            bytes[64 + 56 * index + 32..][..8].copy_from_slice(&(interpreter.len() as u64).to_le_bytes());
        }
        bytes.extend(interpreter);
        bytes
    }

    fn elf(class: u8, machine: u16, kinds: &[u32]) -> Vec<u8> {
        elf_of(b"/lib64/ld-linux-x86-64.so.2\0", class, machine, kinds)
    }

    #[test]
    fn of_elf_only_what_cannot_be_preloaded_is_a_hindrance() {
        assert_eq!(of_elf(&*elf(2, machine::IN_ELF.0, &[6, 3, 1])), None);
        assert_eq!(of_elf(&*elf(2, machine::IN_ELF.0, &[1, 2])), Some(Hindrance::Static));
        assert_eq!(
            of_elf(&*elf_of(b"/lib/ld-musl-x86_64.so.1\0", 2, machine::IN_ELF.0, &[6, 3, 1])),
            Some(Hindrance::Musl)
        );
        assert_eq!(of_elf(&*elf(1, 3, &[3])), Some(Hindrance::OtherProcessor));
        assert_eq!(of_elf(&*elf(2, 243, &[3])), Some(Hindrance::OtherProcessor));
        assert_eq!(of_elf(&b"\x7fELF"[..]), None);
        assert_eq!(of_elf(&b"text"[..]), None);
    }

    #[test]
    fn interpreter_is_the_first_word_of_the_line() {
        assert_eq!(interpreter(b"#! /usr/bin/env python3\nprint()\n"), Some("/usr/bin/env".into()));
        assert_eq!(interpreter(b"#!/bin/sh"), Some("/bin/sh".into()));
        assert_eq!(interpreter(b"#!\n"), None);
        assert_eq!(interpreter(b"echo\n"), None);
    }

    #[test]
    fn find_by_name_on_the_path_and_by_path_as_it_is() {
        assert_eq!(find("sh".as_ref(), Some("/nonexistent:/bin".into())), Some("/bin/sh".into()));
        assert_eq!(find("sh".as_ref(), Some("/nonexistent".into())), None);
        assert_eq!(find("/bin/sh".as_ref(), None), Some("/bin/sh".into()));
        assert_eq!(find("./no-such".as_ref(), None), None);
    }

    #[test]
    fn hindrance_of_this_program_is_none() {
        assert_eq!(hindrance(&std::env::current_exe().unwrap()), None);
    }
}
