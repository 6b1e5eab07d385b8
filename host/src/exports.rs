//! Memory that the processes of one `p2pshim run` let others open: each writes what it exports into a file of the run's folder, where others
//! find it by its handle. The driver does not tell on which GPU such memory lies.
//!
//! A file is records of one size, each written at once; what is not whole is not read. It is named after its process, and means nothing
//! once that is gone, or to processes that number processes otherwise.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::machine;

/// `CUipcMemHandle`, or `CUmemPoolPtrExportData`.
pub type Handle = [u8; 64];

/// The first bytes of a record.
const MAGIC: [u8; 8] = *b"P2PEXP01";
/// Bytes for a GPU's UUID, and for its PCI bus id; zeros follow them.
const UUID: usize = 48;
const BUS_ID: usize = 16;
const RECORD: usize = MAGIC.len() + size_of::<Handle>() + UUID + BUS_ID;
/// Records that a file may have.
const MOST: usize = 4096;
/// Files that are looked at.
const FILES: usize = 1024;

/// The GPU on which exported memory lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its UUID.
    pub uuid: String,
    /// Its place on the PCI bus.
    pub bus_id: String,
}

/// The exports of a run, as one of its processes sees them.
#[derive(Debug)]
pub struct Exports {
    folder: PathBuf,
    user: u32,
    namespace: String,
    /// How much of each file was read.
    read: BTreeMap<String, u64>,
    known: BTreeMap<Handle, (String, Gpu)>,
}

impl Exports {
    /// Those in a folder, if only this user can see into it.
    pub fn of(folder: PathBuf, user: u32) -> Option<Self> {
        let found = fs::symlink_metadata(&folder).ok()?;
        let is_private = found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0;
        let namespace = machine::process_namespace()?.trim_matches(|letter: char| !letter.is_ascii_digit()).to_owned();
        let (read, known) = (BTreeMap::new(), BTreeMap::new());
        is_private.then_some(Self { folder, user, namespace, read, known })
    }

    /// Tells the others of memory that this process has exported. An export that finds no place is not told.
    pub fn publish(&self, handle: &Handle, gpu: &Gpu) {
        if gpu.uuid.len() > UUID || gpu.bus_id.len() > BUS_ID {
            return;
        }
        let mut record = [0; RECORD];
        let parts: [&[u8]; 4] = [&MAGIC, handle, gpu.uuid.as_bytes(), gpu.bus_id.as_bytes()];
        let mut rest = &mut record[..];
        for (part, room) in parts.into_iter().zip([MAGIC.len(), handle.len(), UUID, BUS_ID]) {
            let Some((place, behind)) = rest.split_at_mut_checked(room) else { return };
            place.iter_mut().zip(part).for_each(|(place, byte)| *place = *byte);
            rest = behind;
        }
        if let Some(mut own) = self.own() {
            let _ = own.write(&record);
        }
    }

    /// The file of this process, which may have become another program since it wrote there; unless it is full, or ends within a record. It is not
    /// kept open: the program may close descriptors that are not its own.
    fn own(&self) -> Option<File> {
        let (process, start) = (machine::number_in_proc()?, machine::process_start("self")?);
        let name = format!("{process}-{start}-{}", self.namespace);
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = options.open(self.folder.join(name)).ok()?;
        let found = file.metadata().ok().filter(|found| found.is_file() && found.uid() == self.user)?;
        if found.len() == 0 {
            self.clear();
        }
        (found.len() < (MOST * RECORD) as u64 && found.len() % RECORD as u64 == 0).then_some(file)
    }

    /// Whether nobody has said this here before: a file stands for it. If that cannot be found out, it is news.
    pub fn is_news(&self, said: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        said.hash(&mut hasher);
        let file = self.folder.join(format!("said-{:016x}", hasher.finish()));
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
        made.err().is_none_or(|error| error.kind() != io::ErrorKind::AlreadyExists)
    }

    /// The GPU of memory that another process, which still lives, has exported by this handle.
    pub fn find(&mut self, handle: &Handle) -> Option<Gpu> {
        let found = |this: &Self| {
            let (file, gpu) = this.known.get(handle)?;
            this.is_alive(file).then(|| gpu.clone())
        };
        // A handle comes again if a process has the number of one that is gone.
        found(self).or_else(|| {
            self.read_on();
            found(self)
        })
    }

    /// Removes files of processes that are gone, once there are many: only so many are looked at.
    fn clear(&self) {
        let files: Vec<_> = fs::read_dir(&self.folder).into_iter().flatten().flatten().collect();
        let is_of_here = |name: &str| name.split('-').nth(2) == Some(&self.namespace);
        for entry in files.iter().filter(|_| files.len() > FILES / 2) {
            if entry.file_name().to_str().is_some_and(|name| is_of_here(name) && !self.is_alive(name)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Whether the process lives that a file is named after.
    fn is_alive(&self, file: &str) -> bool {
        let parts: Vec<&str> = file.split('-').collect();
        let &[process, start, namespace] = &parts[..] else { return false };
        let is_number = !process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit());
        is_number && namespace == self.namespace && machine::process_start(process).is_some_and(|it| it == start)
    }

    /// Reads what has come since.
    fn read_on(&mut self) {
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten().take(FILES);
        for entry in files {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let before = self.read.get(&name).copied().unwrap_or(0);
            // Most files have nothing new.
            if !entry.metadata().is_ok_and(|found| found.len() > before) {
                continue;
            }
            let Some(text) = self.rest_of(&entry.path(), before).filter(|text| !text.is_empty()) else { continue };
            let records = text.chunks_exact(RECORD);
            self.read.insert(name.clone(), before + (records.len() * RECORD) as u64);
            for (handle, gpu) in records.filter_map(decode) {
                self.known.insert(handle, (name.clone(), gpu));
            }
        }
    }

    /// Reads a file from an offset on, if it is one of this user's.
    fn rest_of(&self, path: &Path, before: u64) -> Option<Vec<u8>> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        let is_ours = |found: &Metadata| found.is_file() && found.uid() == self.user && found.len() > before;
        file.metadata().ok().filter(is_ours)?;
        file.seek(SeekFrom::Start(before)).ok()?;
        let mut text = Vec::new();
        file.take(((MOST * RECORD) as u64).saturating_sub(before)).read_to_end(&mut text).ok()?;
        Some(text)
    }
}

fn decode(record: &[u8]) -> Option<(Handle, Gpu)> {
    let (handle, names) = record.strip_prefix(&MAGIC)?.split_first_chunk()?;
    let (uuid, bus_id) = names.split_at_checked(UUID)?;
    let text = |bytes: &[u8]| {
        let text: Vec<u8> = bytes.iter().copied().take_while(|&byte| byte != 0).collect();
        String::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()))
    };
    Some((*handle, Gpu { uuid: text(uuid)?, bus_id: text(bus_id)? }))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use tempfile::TempDir;

    use super::*;

    struct Folder(TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o700)).tempdir().unwrap())
        }

        fn exports(&self) -> Exports {
            Exports::of(self.0.path().to_owned(), fs::metadata(&self.0).unwrap().uid()).unwrap()
        }

        fn file(&self) -> PathBuf {
            fs::read_dir(&self.0).unwrap().next().unwrap().unwrap().path()
        }
    }

    fn gpu(number: u8) -> Gpu {
        Gpu { uuid: format!("GPU-00000000-0000-0000-0000-{number:012}"), bus_id: format!("0000:{number:02}:00.0") }
    }

    #[test]
    fn find_what_others_publish_also_later() {
        let folder = Folder::new();
        let (one, mut other) = (folder.exports(), folder.exports());
        assert_eq!(other.find(&[1; 64]), None);
        for number in 1..=3 {
            one.publish(&[number; 64], &gpu(number));
            assert_eq!(other.find(&[number; 64]), Some(gpu(number)));
        }
        assert_eq!((other.find(&[1; 64]), other.find(&[9; 64])), (Some(gpu(1)), None));
    }

    #[test]
    fn find_nothing_of_processes_that_are_gone_or_numbered_otherwise() {
        let folder = Folder::new();
        folder.exports().publish(&[1; 64], &gpu(1));
        let file = folder.file();
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        let [process, start, namespace] = name.split('-').collect::<Vec<_>>()[..] else { panic!("{name}") };
        let gone = [
            format!("{process}-{start}0-{namespace}"),
            format!("4194305-{start}-{namespace}"),
            format!("{process}-{start}-{namespace}0"),
            format!("../self-{start}-{namespace}").replace('/', "_"),
            "x".to_owned(),
        ];
        for name in gone {
            fs::rename(folder.file(), folder.0.path().join(&name)).unwrap();
            assert_eq!(folder.exports().find(&[1; 64]), None, "{name}");
        }
        fs::rename(folder.file(), &file).unwrap();
        assert_eq!(folder.exports().find(&[1; 64]), Some(gpu(1)));
    }

    #[test]
    fn find_the_gpu_of_a_handle_that_comes_again() {
        let folder = Folder::new();
        let mut other = folder.exports();
        folder.exports().publish(&[1; 64], &gpu(1));
        assert_eq!(other.find(&[1; 64]), Some(gpu(1)));
        // As the file of a process that is gone.
        let live = folder.file();
        let name = live.file_name().unwrap().to_str().unwrap().to_owned();
        let gone = folder.0.path().join(format!("4194305-{}", name.split_once('-').unwrap().1));
        fs::rename(&live, &gone).unwrap();
        let mut other = folder.exports();
        assert_eq!(other.find(&[1; 64]), None);
        folder.exports().publish(&[1; 64], &gpu(2));
        assert_eq!(other.find(&[1; 64]), Some(gpu(2)));
    }

    #[test]
    fn publish_removes_files_of_processes_that_are_gone_once_there_are_many() {
        let folder = Folder::new();
        let exports = folder.exports();
        let files = |end: &str| {
            let names = fs::read_dir(&folder.0).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
            names.filter(|name| name.starts_with("4194305-") && name.ends_with(end)).count()
        };
        let (here, elsewhere) = (format!("-{}", exports.namespace), format!("-{}0", exports.namespace));
        for number in 0..FILES {
            fs::write(folder.0.path().join(format!("4194305-{number}{here}")), [0; RECORD]).unwrap();
        }
        fs::write(folder.0.path().join(format!("4194305-1{elsewhere}")), [0; RECORD]).unwrap();
        fs::write(folder.0.path().join("4194305-x"), "").unwrap();
        assert_eq!(files(&here), FILES);
        let mut other = folder.exports();
        exports.publish(&[1; 64], &gpu(1));
        assert_eq!((files(&here), files(&elsewhere), files("x")), (0, 1, 1));
        assert_eq!(other.find(&[1; 64]), Some(gpu(1)));
        // A few stay, and so does what was published.
        fs::write(folder.0.path().join(format!("4194305-1{here}")), [0; RECORD]).unwrap();
        folder.exports().publish(&[2; 64], &gpu(2));
        assert_eq!((files(&here), other.find(&[1; 64]), other.find(&[2; 64])), (1, Some(gpu(1)), Some(gpu(2))));
    }

    /// A write that was cut short, by a kill or a full disk.
    #[test]
    fn find_whole_records_only() {
        let folder = Folder::new();
        let one = folder.exports();
        one.publish(&[1; 64], &gpu(1));
        let whole = fs::read(folder.file()).unwrap();
        let mut other = folder.exports();
        for length in 0..RECORD {
            fs::write(folder.file(), &whole[..length]).unwrap();
            assert_eq!(other.find(&[1; 64]), None, "{length}");
        }
        fs::write(folder.file(), &whole).unwrap();
        assert_eq!(other.find(&[1; 64]), Some(gpu(1)));
        fs::write(folder.file(), [7; RECORD]).unwrap();
        assert_eq!(folder.exports().find(&[7; 64]), None);
        // Nothing is written behind a part of a record.
        fs::write(folder.file(), &whole[..9]).unwrap();
        one.publish(&[2; 64], &gpu(2));
        assert_eq!(fs::metadata(folder.file()).unwrap().len(), 9);
    }

    #[test]
    fn exports_of_others_and_through_links_are_not_read() {
        let folder = Folder::new();
        folder.exports().publish(&[1; 64], &gpu(1));
        let theirs = Exports { user: folder.exports().user + 1, ..folder.exports() };
        assert_eq!({ theirs }.find(&[1; 64]), None);
        let (file, moved) = (folder.file(), folder.0.path().with_extension("moved"));
        fs::rename(&file, &moved).unwrap();
        symlink(&moved, &file).unwrap();
        assert_eq!(folder.exports().find(&[1; 64]), None);
        fs::remove_file(&moved).unwrap();
        let user = fs::metadata(&folder.0).unwrap().uid();
        assert!(Exports::of(folder.0.path().to_owned(), user + 1).is_none());
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(Exports::of(folder.0.path().to_owned(), user).is_none());
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o700)).unwrap();
    }

    #[test]
    fn publish_ends_where_a_file_is_full() {
        let folder = Folder::new();
        let one = folder.exports();
        for number in 0..MOST + 10 {
            let mut handle = [0; 64];
            handle[..8].copy_from_slice(&number.to_le_bytes());
            one.publish(&handle, &gpu(1));
        }
        assert_eq!(fs::metadata(folder.file()).unwrap().len(), (MOST * RECORD) as u64);
        // As another program.
        folder.exports().publish(&[1; 64], &gpu(1));
        assert_eq!(fs::metadata(folder.file()).unwrap().len(), (MOST * RECORD) as u64);
        assert_eq!((folder.exports().find(&[0; 64]), folder.exports().find(&[1; 64])), (Some(gpu(1)), None));
        fs::remove_file(folder.file()).unwrap();
        folder.exports().publish(&[1; 64], &Gpu { uuid: "x".repeat(UUID + 1), ..gpu(1) });
        assert_eq!(folder.exports().find(&[1; 64]), None);
    }
}
