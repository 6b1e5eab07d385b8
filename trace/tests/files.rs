//! The reader finds what was written, whatever becomes of the file in between.

#![allow(clippy::unwrap_used, reason = "a test fails so")]

use std::fs;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};

#[path = "../../host/src/fuzz/inputs.rs"]
#[allow(dead_code, clippy::indexing_slicing, reason = "a test fails so; others use the rest")]
mod inputs;

use p2pshim_trace::{
    CHUNK_BYTES, Capture, DeviceTime, Error, HEADER_BYTES, NoteKind, Options, PART, Record, Segment, State, Trace,
    VERSION, Wait, Writer,
};

/// A folder that is gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("p2pshim-trace-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn options(&self, limit: u64) -> Options {
        Options { folder: self.0.clone(), name: "one.p2ptrace".to_owned(), limit, limit_in_memory: limit }
    }

    fn file(&self) -> PathBuf {
        self.0.join("one.p2ptrace")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const MIB: u64 = 1 << 20;

/// Files of systems with pages of 16 and of 64 KiB, and of one whose pages have fewer bytes than a header.
#[test]
fn create_for_pages_of_any_size_all_calls_are_read() {
    for (page, header_bytes) in [(1024, HEADER_BYTES), (16_384, 16_384), (65_536, 65_536)] {
        let folder = Folder::new(&format!("pages-{page}"));
        let writer = Writer::create_for_pages(&folder.options(20 * MIB), page).unwrap();
        let count = write_calls(&writer, &mut Segment::default(), 10_000);
        assert_eq!(count, 20_000);
        let bytes = fs::read(folder.file()).unwrap();
        assert_eq!(u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize, header_bytes);
        assert!((bytes.len() - header_bytes).is_multiple_of(CHUNK_BYTES));
        assert_eq!(bytes[header_bytes], 1, "a chunk of calls");
        let trace = Trace::open(&folder.file()).unwrap();
        assert_eq!(trace.problems(), Vec::<String>::new());
        assert_eq!(calls(&trace).len() as u64, count);
    }
}

/// A file that lost its header is told from one that never had anything, whatever size the header had.
#[test]
fn open_a_file_of_large_pages_without_its_header_says_that_it_is_lost() {
    let folder = Folder::new("pages-lost");
    let writer = Writer::create_for_pages(&folder.options(MIB), 65_536).unwrap();
    write_calls(&writer, &mut Segment::default(), 100);
    let mut bytes = fs::read(folder.file()).unwrap();
    bytes[..65_536].fill(0);
    assert!(matches!(Trace::from_bytes(bytes.clone(), &folder.file()), Err(Error::Damaged(_))));
    bytes.fill(0);
    assert!(matches!(Trace::from_bytes(bytes, &folder.file()), Err(Error::Empty)));
}

/// Writes calls, each with a call inside it, and returns how many there was room for.
fn write_calls(writer: &Writer, segment: &mut Segment, count: u64) -> u64 {
    let begin = |depth, function| {
        let now = writer.now();
        match segment.begin(depth, function, 0x1234, now) {
            None if writer.extend(segment) == Ok(true) => segment.begin(depth, function, 0x1234, now),
            begun => begun,
        }
    };
    let mut written = 0;
    for number in 0..count {
        let (outer, inner) = (begin(0, 7), begin(1, 9));
        if let Some(inner) = inner {
            inner.copies(0x10, 0x20, number, 0x30);
            inner.between(Some(0), Some(3));
            inner.takes(5);
            inner.done(writer.now(), 0, Capture::Rewritten);
            written += 1;
        }
        if let Some(outer) = outer {
            inner.into_iter().for_each(|inner| outer.like(inner));
            outer.breaks(0);
            outer.breaks(4);
            outer.breaks(4);
            outer.done(writer.now(), -1, Capture::None);
            written += 1;
        }
        writer.calibrate_if_due(writer.now());
    }
    written
}

fn calls(trace: &Trace) -> Vec<(u32, Record)> {
    let mut buffer = Vec::new();
    let mut all = Vec::new();
    for number in 0..trace.blocks() {
        let block = trace.block(number, &mut buffer).unwrap().unwrap();
        all.extend(block.calls().map(|call| (block.thread, call)));
    }
    all
}

#[test]
fn calls_are_read_as_they_were_written() {
    let folder = Folder::new("calls");
    let writer = Writer::create(&folder.options(MIB)).unwrap();
    let mut segment = Segment::default();
    assert_eq!(write_calls(&writer, &mut segment, 500), 1000, "more than a chunk holds");
    let hanging = segment.begin(0, 8, 1, writer.now()).unwrap();
    hanging.between(Some(1), None);

    let trace = Trace::open(&folder.file()).unwrap();
    assert_eq!((trace.process(), trace.dropped(), trace.problems()), (std::process::id(), 0, &[][..]));
    let calls = calls(&trace);
    assert_eq!(calls.len(), 1001);
    for (number, pair) in calls.chunks_exact(2).enumerate() {
        let [(_, outer), (_, inner)] = pair else { panic!() };
        assert_eq!((outer.function, outer.depth, outer.parent, outer.result), (7, 0, 0, -1));
        assert_eq!((inner.function, inner.depth, inner.parent, inner.result), (9, 1, 1, 0));
        assert!(outer.start <= inner.start && inner.start <= inner.end && inner.end <= outer.end);
        for call in [outer, inner] {
            assert_eq!((call.src, call.dst, call.bytes, call.stream), (0x10, 0x20, number as u64, 0x30));
            assert_eq!((call.src_device, call.dst_device, call.path), (Some(0), Some(3), 5));
            assert_eq!((call.site, call.state), (0x1234, State::Done));
        }
        assert_eq!((outer.capture, inner.capture), (Capture::None, Capture::Rewritten));
        assert_eq!(outer.rules().collect::<Vec<_>>(), [0, 4]);
        assert_eq!(inner.rules().count(), 0);
    }
    let (_, last) = calls.last().unwrap();
    assert_eq!((last.state, last.function, last.src_device, last.dst_device), (State::Begun, 8, Some(1), None));
}

#[test]
fn call_is_found_under_the_one_that_made_it_though_a_signal_handler_has_copied_between() {
    let folder = Folder::new("handler");
    let writer = Writer::create(&folder.options(MIB)).unwrap();
    let segment = Segment::default();
    writer.extend(&segment).unwrap();
    let begin = |depth, function| segment.begin(depth, function, 1, writer.now()).unwrap();
    begin(0, 7);
    let before = segment.open();
    begin(0, 8);
    begin(1, 9);
    segment.reopen(before);
    begin(1, 10);
    let trace = Trace::open(&folder.file()).unwrap();
    let parents: Vec<_> = calls(&trace).iter().map(|(_, call)| (call.function, call.parent)).collect();
    assert_eq!(parents, [(7, 0), (8, 0), (9, 1), (10, 3)]);
}

#[test]
fn call_without_a_record_is_read_while_it_lasts_and_afterwards() {
    let folder = Folder::new("waits");
    let writer = Writer::create(&folder.options(MIB)).unwrap();
    let segment = Segment::default();
    assert!(!segment.waits(7, 3, 0x30, 1), "there is no chunk");
    writer.extend(&segment).unwrap();
    let read = || {
        let (trace, mut buffer) = (Trace::open(&folder.file()).unwrap(), Vec::new());
        let block = trace.block(0, &mut buffer).unwrap().unwrap();
        (block.wait, block.calls().count())
    };
    assert_eq!(read(), (None, 0));
    assert!(segment.waits(7, 3, 0x30, 100));
    let wait = Wait { state: State::Begun, when: 100, handle: 0x30, site: 3, function: 7 };
    assert_eq!(read(), (Some(wait), 0));
    // A chunk that the thread takes meanwhile gets the next call.
    while segment.begin(0, 8, 1, 150).is_some() {}
    writer.extend(&segment).unwrap();
    segment.note_return(200);
    assert_eq!(read().0, Some(Wait { state: State::Done, when: 200, ..wait }));
    segment.note_return(250);
    assert_eq!(read().0.unwrap().when, 200, "once");
    assert!(segment.waits(9, 0, 0, 300));
    let wait = Wait { state: State::Begun, when: 300, handle: 0, site: 0, function: 9 };
    assert_eq!(read().0, Some(wait), "where the last one was");
    segment.note_return(400);
    while segment.begin(0, 8, 1, 450).is_some() {}
    writer.extend(&segment).unwrap();
    assert!(segment.waits(9, 0, 0, 500));
    assert_eq!(read().0.unwrap().when, 400, "in a later chunk");
}

#[test]
fn parts_are_read_as_they_were_written_and_sums_of_damaged_ones_do_not_overflow() {
    let folder = Folder::new("parts");
    let writer = Writer::create(&folder.options(MIB)).unwrap();
    let segment = Segment::default();
    writer.extend(&segment).unwrap();
    let call = segment.begin(0, 7, 0x1234, writer.now()).unwrap();
    call.done(writer.now(), 0, Capture::None);
    for copies in [3, u64::MAX, u64::MAX] {
        let part = segment.begin(1, PART, 0, writer.now()).unwrap();
        part.set_part_of(call, copies, 4096);
    }
    let calls = calls(&Trace::open(&folder.file()).unwrap());
    assert_eq!((calls[0].1.is_part(), calls[0].1.copies()), (false, 1));
    assert!(calls[1].1.is_part() && calls[1].1.start == calls[0].1.start && calls[1].1.bytes == 4096);
    assert_eq!(
        calls.iter().map(|(_, call)| call.copies()).try_fold(0, u64::checked_add),
        Some(4 + 2 * u64::from(u32::MAX))
    );
}

#[test]
fn calls_of_a_closed_file_and_of_bytes_are_the_same() {
    let folder = Folder::new("closed-or-bytes");
    let writer = Writer::create(&folder.options(MIB)).unwrap();
    write_calls(&writer, &mut Segment::default(), 300);
    writer.note(NoteKind::Program, 0, &[b"x"]);
    let mut trace = Trace::open(&folder.file()).unwrap();
    let memory = Trace::from_bytes(fs::read(folder.file()).unwrap(), Path::new("name")).unwrap();
    let expected = calls(&trace);
    assert_eq!((expected.len(), memory.notes().len(), memory.path()), (600, 1, Path::new("name")));
    assert_eq!(calls(&memory), expected);
    trace.close();
    assert_eq!(calls(&trace), expected);
    fs::remove_file(folder.file()).unwrap();
    assert!(trace.block(0, &mut Vec::new()).is_err(), "it was not kept open");
    assert!(matches!(Trace::from_bytes(Vec::new(), Path::new("")), Err(Error::Empty)));
}

#[test]
fn device_times_come_later() {
    let folder = Folder::new("device");
    let writer = Writer::create(&folder.options(MIB)).unwrap();
    let segment = Segment::default();
    writer.extend(&segment).unwrap();
    let begun: Vec<_> = (0..3).map(|_| segment.begin(0, 1, 1, writer.now()).unwrap()).collect();
    begun.iter().for_each(|begun| begun.done(writer.now(), 0, Capture::Forwarded));
    begun.iter().for_each(|begun| begun.mark_timed());
    let late = writer.now() + (1 << 40);
    begun[0].timed(Some((late, 1000)));
    begun[1].timed(None);
    let calls = calls(&Trace::open(&folder.file()).unwrap());
    let times: Vec<_> = calls.iter().map(|(_, call)| (call.device_time, call.device_nanos)).collect();
    assert_eq!(times, [(DeviceTime::Known, 1000), (DeviceTime::Failed, 0), (DeviceTime::Pending, 0)]);
    assert!(calls[0].1.device_start.abs_diff(late) <= 1 << 20, "large numbers lose their end");
    assert!(calls.iter().all(|(_, call)| call.state == State::Done && call.capture == Capture::Forwarded));
}

#[test]
fn threads_have_chunks_of_their_own() {
    let folder = Folder::new("threads");
    let writer = Writer::create(&folder.options(64 * MIB)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(write_calls(&writer, &mut Segment::default(), 5000), 10_000));
        }
    });
    let trace = Trace::open(&folder.file()).unwrap();
    let calls = calls(&trace);
    assert_eq!(calls.len(), 80_000);
    let threads: std::collections::BTreeSet<u32> = calls.iter().map(|&(thread, _)| thread).collect();
    assert_eq!(threads.len(), 8);
    for thread in threads {
        let starts: Vec<u64> = calls.iter().filter(|(of, _)| *of == thread).map(|(_, call)| call.start).collect();
        assert!(starts.is_sorted() && starts.len() == 10_000);
    }
}

/// Threads that come and go need no more space than those that are there at once, and all that is recorded.
#[test]
fn threads_that_end_leave_their_space_to_others() {
    const AT_ONCE: u64 = 8;
    const ROUNDS: u64 = 500;
    let folder = Folder::new("ends");
    let writer = Writer::create(&folder.options(64 * MIB)).unwrap();
    let calls_of = |number: u64| number % 5;
    for round in 0..ROUNDS {
        std::thread::scope(|scope| {
            for number in round * AT_ONCE..(round + 1) * AT_ONCE {
                let writer = &writer;
                scope.spawn(move || {
                    let segment = Segment::default();
                    // One in five only waits.
                    assert_eq!(writer.extend(&segment), Ok(true));
                    segment.waits(3, 4, number, writer.now());
                    for call in 0..calls_of(number) {
                        if !segment.has_room() {
                            assert_eq!(writer.extend(&segment), Ok(true));
                        }
                        segment.begin(0, 7, 1, writer.now()).unwrap().copies(number, call, 0, 0);
                    }
                    writer.take_back(&segment);
                    assert!(!segment.has_room());
                });
            }
        });
    }
    let trace = Trace::open(&folder.file()).unwrap();
    assert!(trace.problems().is_empty(), "{:?}", trace.problems());
    // Of a chunk that is nearly full a thread may leave nothing.
    let bytes = (ROUNDS * AT_ONCE * (1 + 2)) as usize * 64 + 2 * AT_ONCE as usize * CHUNK_BYTES;
    let chunks = fs::metadata(folder.file()).unwrap().len() as usize;
    assert!(chunks <= HEADER_BYTES + bytes.next_multiple_of(32 * CHUNK_BYTES), "{chunks}, not {bytes}");
    let mut seen = std::collections::BTreeMap::new();
    let mut buffer = Vec::new();
    for number in 0..trace.blocks() {
        let block = trace.block(number, &mut buffer).unwrap().unwrap();
        let of = block.wait.map(|wait| wait.handle);
        for call in block.calls() {
            assert!(of.is_none_or(|of| of == call.src), "a call of another thread");
            seen.entry(call.src).or_insert_with(Vec::new).push((block.thread, call.dst));
        }
    }
    for number in 0..ROUNDS * AT_ONCE {
        let calls = seen.remove(&number).unwrap_or_default();
        assert!(calls.iter().map(|(_, call)| *call).eq(0..calls_of(number)), "{number}: {calls:?}");
        assert!(calls.windows(2).all(|two| two[0].0 == two[1].0), "{number}: {calls:?}");
    }
}

/// A signal handler's writer and segment, and the number of records that it has completed.
static INTERRUPTED: (AtomicPtr<Writer>, AtomicPtr<Segment>, AtomicU64) =
    (AtomicPtr::new(ptr::null_mut()), AtomicPtr::new(ptr::null_mut()), AtomicU64::new(0));

#[test]
fn segment_loses_nothing_if_a_signal_handler_records_too() {
    /// As many as it takes to be interrupted so often; where the sender hardly gets a processor, more.
    const CALLS: std::ops::Range<u64> = 300_000..10_000_000;
    const HANDLED: u64 = 1000;
    /// Records a call. Space is taken under a lock, and so with signals held back.
    fn record(function: u8, number: u64) {
        let (writer, segment, _) = &INTERRUPTED;
        // SAFETY: of one thread, which waits for its handler.
        let (writer, segment) = unsafe { (&*writer.load(Relaxed), &*segment.load(Relaxed)) };
        let begun = loop {
            match segment.begin(0, function, 1, writer.now()) {
                Some(begun) => break begun,
                // SAFETY: sets of signals, and those of this thread.
                None => unsafe {
                    let (mut signal, mut before) = (std::mem::zeroed(), std::mem::zeroed());
                    libc::sigaddset(&mut signal, libc::SIGUSR1);
                    libc::pthread_sigmask(libc::SIG_BLOCK, &signal, &mut before);
                    assert_eq!(writer.extend(segment), Ok(true));
                    libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
                },
            }
        };
        begun.copies(0, 0, number, 0);
        begun.done(writer.now(), 0, Capture::None);
    }
    extern "C" fn handle(_: i32) {
        let (_, _, count) = &INTERRUPTED;
        record(9, count.fetch_add(1, Relaxed));
    }
    let folder = Folder::new("signals");
    let mut writer = Writer::create(&folder.options(1024 * MIB)).unwrap();
    let mut segment = Segment::default();
    INTERRUPTED.0.store(&mut writer, Relaxed);
    INTERRUPTED.1.store(&mut segment, Relaxed);
    let is_over = AtomicBool::new(false);
    let mut made = 0;
    std::thread::scope(|scope| {
        // SAFETY: the handler does nothing that may not happen at any time; the thread outlives the scope.
        let this = unsafe {
            libc::signal(libc::SIGUSR1, handle as extern "C" fn(i32) as usize);
            libc::pthread_self()
        };
        let is_over = &is_over;
        scope.spawn(move || {
            while !is_over.load(Relaxed) {
                // SAFETY: as above.
                unsafe { libc::pthread_kill(this, libc::SIGUSR1) };
            }
        });
        while made < CALLS.start || (made < CALLS.end && INTERRUPTED.2.load(Relaxed) <= HANDLED) {
            record(7, made);
            made += 1;
        }
        is_over.store(true, Relaxed);
    });
    let trace = Trace::open(&folder.file()).unwrap();
    let numbers = |of| {
        let calls = calls(&trace).into_iter().filter(|(_, call)| call.function == of && call.state == State::Done);
        let mut numbers: Vec<u64> = calls.map(|(_, call)| call.bytes).collect();
        numbers.sort_unstable();
        numbers
    };
    let handled = INTERRUPTED.2.load(Relaxed);
    println!("{handled} signals in {made} calls");
    assert!(handled > HANDLED, "{handled}");
    assert!(numbers(7).into_iter().eq(0..made), "of {made} calls {} are there", numbers(7).len());
    assert!(numbers(9).into_iter().eq(0..handled), "of {handled} calls {} are there", numbers(9).len());
    assert!(trace.problems().is_empty());
}

#[test]
fn notes_are_read_as_they_were_written() {
    let folder = Folder::new("notes");
    let writer = Writer::create(&folder.options(MIB)).unwrap();
    assert!(writer.note(NoteKind::Gpu, 3, &[b"H200", b"GPU-1", b"", b"memory=5"]));
    for number in 0..2000 {
        assert!(writer.note(NoteKind::Function, number, &[b"driver", b"cuMemcpyPeer"]), "more than a chunk holds");
    }
    assert!(writer.note(NoteKind::Message, 0, &[&[b'x'; 2 * CHUNK_BYTES]]));
    let trace = Trace::open(&folder.file()).unwrap();
    assert_eq!(trace.notes().len(), 2002);
    let gpu = &trace.notes()[0];
    assert_eq!((gpu.kind, gpu.number, gpu.string(0), gpu.string(2), gpu.string(9)), (NoteKind::Gpu, 3, "H200", "", ""));
    assert_eq!((gpu.value("memory"), gpu.value("mem")), (Some("5"), None));
    assert!(trace.notes_of(NoteKind::Function).map(|note| note.number).eq(0..2000));
    let message = trace.notes_of(NoteKind::Message).next().unwrap().string(0).len();
    assert!((CHUNK_BYTES - 200..CHUNK_BYTES).contains(&message), "cut to what a chunk holds: {message}");
    assert_eq!(trace.problems(), &[] as &[String]);
}

#[test]
fn limit_what_finds_no_room_is_counted_and_said_once() {
    let folder = Folder::new("limit");
    let limit = (HEADER_BYTES + 5 * CHUNK_BYTES) as u64;
    let writer = Writer::create(&folder.options(limit)).unwrap();
    let mut segment = Segment::default();
    for _ in 0..5 {
        segment = Segment::default();
        assert_eq!(writer.extend(&segment), Ok(true));
        assert!(segment.begin(0, 1, 1, 1).is_some());
    }
    assert_eq!(writer.extend(&segment), Ok(true), "its chunk has room yet");
    let other = Segment::default();
    let message = writer.extend(&other).unwrap_err();
    assert!(message.contains("reached its limit") && message.contains("one.p2ptrace"), "{message}");
    assert!(segment.begin(0, 1, 1, 1).is_some());
    assert_eq!([writer.extend(&other), writer.extend(&other)], [Ok(false), Ok(false)]);
    assert!(writer.is_full());
    (0..2).for_each(|_| writer.drop_call());
    assert!(other.begin(0, 1, 1, 1).is_none());
    assert!(!writer.note(NoteKind::Message, 0, &[b"x"]));
    assert_eq!(fs::metadata(folder.file()).unwrap().len(), limit);
    let trace = Trace::open(&folder.file()).unwrap();
    assert_eq!((trace.dropped(), trace.limit(), calls(&trace).len()), (2, limit, 6));
    let small = Writer::create(&Options { name: "small".to_owned(), ..folder.options(5000) }).unwrap_err();
    assert!(small.to_string().contains("5000"), "{small}");
}

#[test]
fn limit_in_memory_is_for_file_systems_in_memory() {
    let limit = (HEADER_BYTES + 3 * CHUNK_BYTES) as u64;
    let limits = |folder: &Folder, limit_in_memory| {
        let options = Options { limit_in_memory, ..folder.options(limit) };
        drop(Writer::create(&options).unwrap());
        Trace::open(&folder.file()).unwrap().limit()
    };
    let in_memory = |name: &str| Folder(Path::new("/dev/shm").join(format!("p2pshim-{name}-{}", std::process::id())));
    let least = limit - CHUNK_BYTES as u64;
    assert_eq!([limits(&in_memory("less"), 0), limits(&in_memory("more"), limit + 1)], [least, limit]);
    let folder = Folder(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("on-disk-{}", std::process::id())));
    if !is_in_memory(&folder.0) {
        assert_eq!(limits(&folder, 0), limit);
    }
}

/// Whether the file system above a folder is in memory, as the system lists it.
fn is_in_memory(folder: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mounts = mounts.lines().filter_map(|mount| {
        let mut fields = mount.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let above = mounts.filter(|(place, _)| folder.starts_with(place)).max_by_key(|(place, _)| place.len());
    above.is_some_and(|(_, kind)| ["tmpfs", "ramfs"].contains(&kind))
}

#[test]
fn create_is_for_the_user_only_and_follows_no_link() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = Folder::new("create");
    let writer = Writer::create(&folder.options(MIB)).unwrap();
    drop(writer);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder.0), mode(&folder.file())), (0o700, 0o600));
    assert_eq!(Writer::create(&folder.options(MIB)).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    let (target, link) = (folder.0.join("target"), folder.0.join("link.p2ptrace"));
    symlink(&target, &link).unwrap();
    assert!(Writer::create(&Options { name: "link.p2ptrace".to_owned(), ..folder.options(MIB) }).is_err());
    assert!(!target.exists());
    let nowhere = Options { folder: folder.0.join("a/b"), ..folder.options(MIB) };
    assert_eq!(Writer::create(&nowhere).unwrap_err().kind(), std::io::ErrorKind::NotFound);
}

/// The descriptor that the writer has its file by.
fn descriptor(folder: &Folder) -> i32 {
    let ours = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| {
        let entry = entry.ok()?;
        let is_ours = fs::read_link(entry.path()).ok()? == folder.file();
        is_ours.then(|| entry.file_name().to_str()?.parse::<i32>().ok()).flatten()
    });
    let ours: Vec<i32> = ours.collect();
    assert_eq!(ours.len(), 1);
    *ours.first().unwrap()
}

#[test]
fn growing_survives_closed_descriptors_and_a_folder_that_is_gone() {
    use std::os::fd::AsRawFd;
    for (name, is_there) in [("closed", true), ("gone", false)] {
        let folder = Folder::new(name);
        let writer = Writer::create(&folder.options(64 * MIB)).unwrap();
        // As a program does that closes what it has not opened; and then opens a file of its own.
        let ours = descriptor(&folder);
        let other = fs::File::create(folder.0.join("other")).unwrap();
        // SAFETY: a descriptor that nothing but the writer has, which is to bear that.
        unsafe { assert_eq!(libc::dup2(other.as_raw_fd(), ours), ours) };
        if !is_there {
            fs::remove_dir_all(&folder.0).unwrap();
        }
        let results: Vec<_> = (0..40).map(|_| writer.extend(&Segment::default())).collect();
        assert_eq!(other.metadata().unwrap().len(), 0, "the program's file");
        if is_there {
            assert!(results.iter().all(|result| *result == Ok(true)), "{results:?}");
        } else {
            let messages: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
            assert!(messages.len() == 1 && messages[0].contains("cannot grow"), "{messages:?}");
            assert_eq!(results.last(), Some(&Ok(false)));
        }
        // SAFETY: as above.
        unsafe { libc::close(ours) };
    }
}

#[test]
fn growing_no_more_what_was_written_is_whole() {
    use std::os::fd::AsRawFd;
    let folder = Folder::new("whole");
    let writer = Writer::create(&folder.options(64 * MIB)).unwrap();
    let ours = descriptor(&folder);
    let (other, elsewhere) = (fs::File::create(folder.0.join("other")).unwrap(), folder.0.join("elsewhere"));
    fs::rename(folder.file(), &elsewhere).unwrap();
    // SAFETY: a descriptor that nothing but the writer has, which is to bear that.
    unsafe { assert_eq!(libc::dup2(other.as_raw_fd(), ours), ours) };
    let written = write_calls(&writer, &mut Segment::default(), 10_000);
    assert!((1_000..20_000).contains(&written), "{written}");
    for _ in 0..3 {
        assert!(!writer.note(NoteKind::Message, 0, &[b"x"]));
    }
    let trace = Trace::open(&elsewhere).unwrap();
    assert_eq!((calls(&trace).len() as u64, trace.problems()), (written, &[] as &[String]));
    // SAFETY: as above.
    unsafe { libc::close(ours) };
}

/// How many bytes of a file are mapped so that they can be read, and how many so that they cannot.
fn mapped(file: &Path) -> (u64, u64) {
    let (mut within_reach, mut beyond) = (0, 0);
    for line in
        fs::read_to_string("/proc/self/maps").unwrap().lines().filter(|line| line.ends_with(file.to_str().unwrap()))
    {
        let (range, rights) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
        *if rights.starts_with('r') { &mut within_reach } else { &mut beyond } += end - start;
    }
    (within_reach, beyond)
}

/// A program that reads all memory that can be read, such as valgrind, must not get past the end of the file.
#[test]
fn growing_no_more_is_within_reach_than_the_file_has() {
    let folder = Folder::new("reach");
    let writer = Writer::create(&folder.options(64 * MIB)).unwrap();
    let mut sizes = Vec::new();
    for _ in 0..3 {
        let size = fs::metadata(folder.file()).unwrap().len();
        let (within_reach, beyond) = mapped(&folder.file());
        assert!(within_reach == size && beyond > 0, "{within_reach} of {size} bytes, and {beyond}");
        sizes.push(size);
        (0..40).for_each(|_| assert_eq!(writer.extend(&Segment::default()), Ok(true)));
    }
    assert!(sizes.is_sorted_by(|before, after| before < after), "{sizes:?}");
}

/// Bytes of address space that the process has.
fn address_space() -> u64 {
    let pages: u64 = fs::read_to_string("/proc/self/statm").unwrap().split(' ').next().unwrap().parse().unwrap();
    pages * 4096
}

/// Programs run whose address space is bounded, by `ulimit -v`. Other tests of this process take some of it meanwhile.
#[test]
fn limit_of_a_file_costs_no_address_space() {
    for limit in [1 << 42, u64::MAX] {
        let folder = Folder::new("large");
        let before = address_space();
        let writer = Writer::create(&folder.options(limit)).unwrap();
        assert!(address_space().saturating_sub(before) < 1 << 40);
        drop(writer);
    }
}

/// Chunks are mapped in regions.
#[test]
fn calls_of_several_regions_are_read_as_they_were_written() {
    const CALLS: u64 = 150_000;
    let folder = Folder::new("regions");
    let writer = Writer::create(&folder.options(64 * MIB)).unwrap();
    let mut segment = Segment::default();
    assert_eq!(write_calls(&writer, &mut segment, CALLS), 2 * CALLS);
    let bytes = fs::metadata(folder.file()).unwrap().len();
    assert!(bytes > 2 * (8 * MIB), "{bytes} bytes");
    let trace = Trace::open(&folder.file()).unwrap();
    let inner: Vec<_> = calls(&trace).into_iter().filter(|(_, call)| call.function == 9).collect();
    assert_eq!(inner.len() as u64, CALLS);
    assert!(inner.iter().zip(0..).all(|((_, call), number)| call.bytes == number));
}

#[test]
fn timeline_real_time_and_durations_are_those_of_the_system() {
    let folder = Folder::new("time");
    let writer = Writer::create(&folder.options(MIB)).unwrap();
    let (begun, clock) = (writer.now(), std::time::Instant::now());
    while clock.elapsed().as_millis() < 50 {
        writer.calibrate_if_due(writer.now());
    }
    let (ended, took) = (writer.now(), clock.elapsed());
    let real = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let timeline = Trace::open(&folder.file()).unwrap().timeline();
    let nanos = timeline.nanos(ended - begun) as f64;
    assert!((nanos / took.as_nanos() as f64 - 1.0).abs() < 0.01, "{nanos} for {took:?}");
    let off = timeline.real(ended).abs_diff(real.as_nanos() as u64);
    assert!(off < 1_000_000, "{off} ns");
    assert!(timeline.ticks(timeline.nanos(1_000_000)).abs_diff(1_000_000) <= 2);
    // Each is rounded by itself.
    let between = timeline.monotonic(ended) - timeline.monotonic(begun);
    assert!(between.abs_diff(timeline.nanos(ended - begun)) <= 1);
}

#[test]
fn open_of_what_is_no_trace_says_so() {
    let folder = Folder::new("open");
    let writer = Writer::create(&folder.options(MIB)).unwrap();
    write_calls(&writer, &mut Segment::default(), 200);
    let good = fs::read(folder.file()).unwrap();
    let open = |bytes: &[u8]| {
        let path = folder.0.join("changed");
        fs::write(&path, bytes).unwrap();
        Trace::open(&path)
    };
    assert!(matches!(open(b""), Err(Error::Empty)));
    assert!(matches!(open(&[0; HEADER_BYTES]), Err(Error::Empty)));
    let lost = [&[0; HEADER_BYTES], &good[HEADER_BYTES..]].concat();
    assert!(matches!(open(&lost), Err(Error::Damaged(_))));
    assert!(matches!(open(b"P2P"), Err(Error::NotATrace)));
    assert!(matches!(open(&good[..HEADER_BYTES - 1]), Err(Error::CutOff)));
    assert!(matches!(open(&[b'x'; 10_000]), Err(Error::NotATrace)));
    assert!(matches!(Trace::open(&folder.0.join("none")), Err(Error::Io(_))));
    let changed = |offset: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[offset] = byte;
        bytes
    };
    let newer = open(&changed(8, 2)).unwrap_err().to_string();
    assert!(newer.contains(&format!("version 2.{}", VERSION.1)) && newer.contains("release"), "{newer}");
    assert!(matches!(open(&changed(16, 1)), Err(Error::Damaged(_))));
    assert!(matches!(open(&changed(28, 9)), Err(Error::Damaged(_))));
    let minor = open(&changed(10, VERSION.1 as u8 + 1)).unwrap();
    assert!(minor.problems()[0].contains(&format!("version 1.{}", VERSION.1 + 1)) && calls(&minor).len() == 400);
}

#[test]
fn open_of_a_file_that_was_cut_off_reads_the_rest() {
    let folder = Folder::new("cut");
    let writer = Writer::create(&folder.options(MIB)).unwrap();
    assert_eq!(write_calls(&writer, &mut Segment::default(), 200), 400);
    let good = fs::read(folder.file()).unwrap();
    let path = folder.0.join("cut");
    fs::write(&path, &good[..HEADER_BYTES + CHUNK_BYTES + 100]).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!(calls(&trace).len(), 255, "what a chunk holds");
    assert!(trace.problems()[0].contains("1 of 2 parts"), "{:?}", trace.problems());
}

#[test]
fn open_of_damaged_files_never_fails_otherwise_than_by_saying_so() {
    let folder = Folder::new("damaged");
    let writer = Writer::create(&folder.options(MIB)).unwrap();
    writer.note(NoteKind::Program, 0, &[b"./app", b"x"]);
    write_calls(&writer, &mut Segment::default(), 100);
    let good = fs::read(folder.file()).unwrap();
    let path = folder.0.join("damaged");
    let mut opened = 0;
    let tries = inputs::each(2_000, |_, random| {
        let mut bytes = good[..HEADER_BYTES + 3 * CHUNK_BYTES].to_vec();
        for _ in 0..=random.below(8) {
            // Headers, of the file, of chunks and of notes, are where damage matters.
            let anywhere = random.below(bytes.len());
            let start = random.one_of(&[0, 32, HEADER_BYTES, HEADER_BYTES + CHUNK_BYTES, anywhere]);
            let at = (start + random.below(100)).min(bytes.len() - 1);
            bytes[at] = [0, 255, 1, random.below(256) as u8][random.below(4)];
        }
        bytes.truncate(bytes.len() - [0, random.below(bytes.len())][random.below(2)]);
        fs::write(&path, &bytes).unwrap();
        if let Ok(trace) = Trace::open(&path) {
            opened += 1;
            let timeline = trace.timeline();
            for (_, call) in calls(&trace) {
                let _ = (timeline.real(call.start), timeline.nanos(call.end.wrapping_sub(call.start)));
            }
        }
    });
    assert!(opened > tries / 4, "{opened}");
}

#[test]
fn exit_status_is_that_of_the_process_and_of_none_that_goes_on() {
    let folder = Folder::new("exit");
    let writer = Writer::create(&folder.options(MIB)).unwrap();
    assert_eq!(Trace::open(&folder.file()).unwrap().exit_status(), None);
    for status in [0, 3, 255] {
        writer.exits(status);
        assert_eq!(Trace::open(&folder.file()).unwrap().exit_status(), Some(status));
    }
}

#[test]
fn hole_behind_what_was_written_is_not_read() {
    let folder = Folder::new("hole");
    let writer = Writer::create(&folder.options(MIB)).unwrap();
    assert_eq!(write_calls(&writer, &mut Segment::default(), 500), 1000);
    let file = fs::OpenOptions::new().write(true).open(folder.file()).unwrap();
    // A filesystem that cannot have such a file is no reason to fail; ext4 has 16 TiB.
    file.set_len(1 << 42).or_else(|_| file.set_len(1 << 36)).unwrap();
    let trace = Trace::open(&folder.file()).unwrap();
    assert_eq!((calls(&trace).len(), trace.problems()), (1000, &[][..]));
}

/// In a process that ends at any moment, no chunk counts as handed out for which the file has no space.
#[test]
fn chunks_count_as_handed_out_once_the_file_has_space_for_them() {
    const THREADS: usize = 4;
    let folder = Folder::new("counted");
    let writer = Writer::create(&folder.options(64 * MIB)).unwrap();
    let writing = AtomicU64::new(THREADS as u64);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                write_calls(&writer, &mut Segment::default(), 20_000);
                writing.fetch_sub(1, Relaxed);
            });
        }
        while writing.load(Relaxed) > 0 {
            let trace = Trace::open(&folder.file()).unwrap();
            // Records of parts that are read while others are written may seem to be missing.
            let is_cut = trace.problems().iter().any(|problem| problem.ends_with("it was cut off"));
            assert!(!is_cut, "{:?}", trace.problems());
        }
    });
}
