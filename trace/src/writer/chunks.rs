//! Where chunks come from: space is taken on the disk, brought into memory and handed out.

use std::fs::File;
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use super::room::{REGION, STEP};
use super::{Writer, lock, open};
use crate::layout::{CHUNK_BYTES, header};

/// Where more space comes from.
#[derive(Debug)]
pub(super) struct Space {
    /// Never closed by us: by then the number may be somebody else's.
    file: ManuallyDrop<File>,
    /// Device and inode: a program that closes all descriptors may get our number for a file of its own.
    identity: (u64, u64),
    path: PathBuf,
    /// Why there will be no more space.
    exhausted: Option<Exhausted>,
}

/// Why there is no more space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exhausted {
    Limit,
    System(i32),
}

impl Writer {
    /// A chunk of zeros that nobody else has. None if there are no more; the first time, with the reason.
    pub(super) fn take_chunk(&self) -> Result<Option<*mut u8>, String> {
        loop {
            if let Some(chunk) = self.room.take(self.u64_at(header::CHUNKS)) {
                return Ok(Some(chunk));
            }
            let mut space = lock(&self.space);
            let ready = self.room.ready();
            // Another thread may have taken more space by now.
            if self.u64_at(header::CHUNKS).load(Relaxed) < ready {
                continue;
            }
            if ready >= self.room.most {
                return self.exhausted(&mut space, Exhausted::Limit);
            }
            if matches!(space.exhausted, Some(Exhausted::System(_))) {
                return Ok(None);
            }
            let step = STEP.min(self.room.most - ready);
            if let Err(error) = space
                .grow(self.header_bytes + ready * CHUNK_BYTES as u64, step)
                .and_then(|()| self.open_up(&space, step))
            {
                return self.exhausted(&mut space, Exhausted::System(error.raw_os_error().unwrap_or(libc::EIO)));
            }
        }
    }

    fn exhausted(&self, space: &mut Space, why: Exhausted) -> Result<Option<*mut u8>, String> {
        if space.exhausted.is_some() {
            return Ok(None);
        }
        space.exhausted = Some(why);
        self.is_full.store(true, Relaxed);
        let path = space.path.display();
        Err(match why {
            Exhausted::Limit => format!(
                "{path} has reached its limit of {} bytes; further calls are only counted",
                self.u64_at(header::LIMIT).load(Relaxed)
            ),
            Exhausted::System(code) => {
                format!("{path} cannot grow: {}; further calls are only counted", io::Error::from_raw_os_error(code))
            }
        })
    }

    /// Has threads take chunks that the file has by now, a step of them: makes them accessible, and brings them into memory where the system
    /// can do that. The file's future is out of reach: valgrind reads all that is within reach when it looks for leaks, and each word past the
    /// end of a file is a signal.
    pub(super) fn open_up(&self, space: &Space, count: u64) -> io::Result<()> {
        /// Linux 5.14.
        const MADV_POPULATE_WRITE: i32 = 23;
        let (room, from) = (&self.room, self.room.ready());
        if room.chunk(from).is_none() {
            let first = from - from % REGION;
            let bytes = REGION.min(room.most.saturating_sub(first)) as usize * CHUNK_BYTES;
            let offset = self.header_bytes + first * CHUNK_BYTES as u64;
            room.map(from, map(&space.file, offset, bytes, libc::PROT_NONE)?);
        }
        let (start, bytes) = (room.chunk(from).ok_or(io::ErrorKind::InvalidInput)?, count as usize * CHUNK_BYTES);
        // SAFETY: within the mapping and the file, where nobody has been handed anything yet; pages are only touched.
        unsafe {
            if libc::mprotect(start.cast(), bytes, libc::PROT_READ | libc::PROT_WRITE) != 0 {
                return Err(io::Error::last_os_error());
            }
            libc::madvise(start.cast(), bytes, MADV_POPULATE_WRITE);
        }
        room.open(from + count);
        Ok(())
    }
}

impl Space {
    /// The space of a new file, which is at `path`.
    pub(super) fn of(file: File, path: &Path) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            file: ManuallyDrop::new(file),
            identity: (metadata.dev(), metadata.ino()),
            path: path.to_owned(),
            exhausted: None,
        })
    }

    fn grow(&mut self, end: u64, step: u64) -> io::Result<()> {
        let is_ours =
            |file: &File| file.metadata().is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity);
        if !is_ours(&self.file) {
            let again = open(&self.path, libc::O_RDWR)?;
            if !is_ours(&again) {
                return Err(io::Error::from_raw_os_error(libc::ENOENT));
            }
            self.file = ManuallyDrop::new(again);
        }
        allocate(&self.file, end, step * CHUNK_BYTES as u64)
    }
}

/// Maps a part of a file for good.
pub(super) fn map(file: &File, offset: u64, bytes: usize, rights: i32) -> io::Result<*mut u8> {
    // SAFETY: a new mapping at an address that the system chooses.
    let start =
        unsafe { libc::mmap(ptr::null_mut(), bytes, rights, libc::MAP_SHARED, file.as_raw_fd(), offset.cast_signed()) };
    if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(start.cast()) }
}

/// Whether a file takes memory, not space on a disk.
pub(super) fn is_in_memory(file: &File) -> bool {
    const RAMFS_MAGIC: libc::__fsword_t = 0x8584_58f6;
    let mut system = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the call writes what it finds there, and it is read only then.
    let found =
        unsafe { (libc::fstatfs(file.as_raw_fd(), system.as_mut_ptr()) == 0).then(|| system.assume_init().f_type) };
    found.is_some_and(|found| [libc::TMPFS_MAGIC, RAMFS_MAGIC].contains(&found))
}

/// Takes space on the disk, so that writing there cannot fail.
pub(super) fn allocate(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let (from, count) = (offset.cast_signed(), bytes.cast_signed());
    loop {
        // SAFETY: the descriptor is a file's.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, from, count) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            // Some file systems cannot; they can be written to.
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => return write_zeros(file, offset, bytes),
            _ => return Err(error),
        }
    }
}

fn write_zeros(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    const ZEROS: &[u8] = &[0; 4096];
    let mut at = offset;
    while at < offset + bytes {
        let count = ZEROS.len().min((offset + bytes - at) as usize);
        file.write_all_at(ZEROS.get(..count).unwrap_or_default(), at)?;
        at += count as u64;
    }
    Ok(())
}
