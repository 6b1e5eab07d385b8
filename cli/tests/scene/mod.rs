//! Traces whose times, process and host are known, for tests.

#![allow(dead_code, clippy::unwrap_used, clippy::indexing_slicing, reason = "each test uses a part; a test fails so")]

pub(crate) mod opposites;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use p2pshim_trace::{CHUNK_BYTES, Capture, NoteKind, OpenRecord, Options, PART, Path as Taken, Segment, Why, Writer};

/// When all traces begin: 2027-01-15 08:00:00 UTC.
pub(crate) const START: u64 = 1_800_000_000_000_000_000;
/// Ticks at that time. A tick is a nanosecond.
pub(crate) const TICKS: u64 = 1_000_000_000;

/// A folder that is gone with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("p2pshim-report-{name}-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The record of a call. Times are nanoseconds after [`START`].
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) function: u8,
    pub(crate) depth: usize,
    pub(crate) site: u16,
    pub(crate) at: u64,
    /// How long it took; none if it never returns.
    pub(crate) took: Option<u64>,
    pub(crate) bytes: u64,
    pub(crate) pair: Option<(u8, u8)>,
    pub(crate) path: u8,
    pub(crate) stream: u64,
    pub(crate) result: i32,
    /// When the GPU began, and how long it took.
    pub(crate) device: Option<(u64, u64)>,
    /// Whether the GPU was asked, and had not made the copy yet.
    pub(crate) is_pending: bool,
    pub(crate) rules: Vec<u8>,
    pub(crate) capture: Capture,
}

/// Numbers of functions in a [`Scene`].
pub(crate) const MEMCPY_PEER: u8 = 1;
pub(crate) const MEMCPY_PEER_ASYNC: u8 = 2;
pub(crate) const ENABLE: u8 = 3;
pub(crate) const CU_MEMCPY_PEER_ASYNC: u8 = 4;
pub(crate) const GRAPH_LAUNCH: u8 = 5;
pub(crate) const STREAM_SYNCHRONIZE: u8 = 6;
/// Numbers of ways.
pub(crate) const DIRECT: u8 = Taken::Direct.number();
pub(crate) const STAGED: u8 = Taken::Staged(Why::NotEnabled).number();
pub(crate) const BLOCKED: u8 = Taken::Staged(Why::Broken).number();
/// Numbers of rules.
pub(crate) const ENABLE_TWICE: u8 = 0;
pub(crate) const OVERLAP: u8 = 1;
pub(crate) const NEVER_ENABLED: u8 = 2;

impl Call {
    pub(crate) fn copy(at: u64, pair: (u8, u8), bytes: u64, path: u8) -> Self {
        Self {
            function: MEMCPY_PEER_ASYNC,
            depth: 0,
            site: 1,
            at,
            took: Some(1_300),
            bytes,
            pair: Some(pair),
            path,
            stream: 0x5500,
            result: 0,
            device: None,
            is_pending: false,
            rules: Vec::new(),
            capture: Capture::None,
        }
    }

    /// The driver's call inside another.
    pub(crate) fn inside(&self) -> Self {
        Self {
            function: CU_MEMCPY_PEER_ASYNC,
            depth: self.depth + 1,
            at: self.at + 100,
            took: Some(900),
            site: 0,
            ..self.clone()
        }
    }
}

/// A trace that is being written.
pub(crate) struct Scene {
    pub(crate) path: PathBuf,
    writer: Writer,
    segment: Segment,
    times: Vec<u64>,
    process: u32,
    /// When it begins, in nanoseconds since 1970.
    pub(crate) origin: u64,
    /// The status that the process gives to `exit`, if it calls that.
    pub(crate) exit: Option<u8>,
}

impl Scene {
    pub(crate) fn new(folder: &Path, name: &str, process: u32) -> Self {
        let options =
            Options { folder: folder.to_owned(), name: name.to_owned(), limit: 1 << 24, limit_in_memory: u64::MAX };
        Self::with(Writer::create(&options).unwrap(), folder.join(name), process)
    }

    /// A scene on a system whose pages have so many bytes.
    pub(crate) fn for_pages(folder: &Path, name: &str, process: u32, page: usize) -> Self {
        let options =
            Options { folder: folder.to_owned(), name: name.to_owned(), limit: 1 << 24, limit_in_memory: u64::MAX };
        Self::with(Writer::create_for_pages(&options, page).unwrap(), folder.join(name), process)
    }

    fn with(writer: Writer, path: PathBuf, process: u32) -> Self {
        Self { path, writer, segment: Segment::default(), times: Vec::new(), process, origin: START, exit: Some(0) }
    }

    /// A scene with the names of functions, ways, rules and codes.
    pub(crate) fn named(folder: &Path, name: &str, process: u32, host: &str) -> Self {
        Self::new(folder, name, process).with_names(host)
    }

    pub(crate) fn with_names(self, host: &str) -> Self {
        let mut scene = self;
        scene.note(0, NoteKind::Program, 0, &["/opt/app/bin/app", "./app", "--steps", "3"]);
        // A process of here, so that it is known to have ended.
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        scene.note(0, NoteKind::Host, 0, &[host, boot.trim()]);
        scene.note(0, NoteKind::Version, 0, &["p2pshim", "0.1.0"]);
        scene.note(0, NoteKind::Version, 0, &["driver", "13.0"]);
        for (number, layer, name) in [
            (MEMCPY_PEER, "runtime", "cudaMemcpyPeer"),
            (MEMCPY_PEER_ASYNC, "runtime", "cudaMemcpyPeerAsync"),
            (ENABLE, "runtime", "cudaDeviceEnablePeerAccess"),
            (CU_MEMCPY_PEER_ASYNC, "driver", "cuMemcpyPeerAsync"),
            (GRAPH_LAUNCH, "runtime", "cudaGraphLaunch"),
            (STREAM_SYNCHRONIZE, "runtime", "cudaStreamSynchronize"),
        ] {
            scene.note(0, NoteKind::Function, number.into(), &[layer, name]);
        }
        scene.note(0, NoteKind::Rule, ENABLE_TWICE.into(), &["P2P-enable-twice", "note"]);
        scene.note(0, NoteKind::Rule, OVERLAP.into(), &["P2P-copy-overlap", "hazard"]);
        scene.note(0, NoteKind::Rule, NEVER_ENABLED.into(), &["P2P-staged-never-enabled", "performance"]);
        scene.note(0, NoteKind::Code, 704, &["runtime", "cudaErrorPeerAccessAlreadyEnabled"]);
        scene.note(0, NoteKind::Code, 719, &["runtime", "cudaErrorLaunchFailure"]);
        scene.note(0, NoteKind::Code, 1, &["runtime", "cudaErrorInvalidValue"]);
        scene
    }

    /// Notes GPUs with these UUIDs by ordinal, and that all of them can access each other.
    pub(crate) fn gpus(&mut self, uuids: &[(&str, &str)]) {
        for (ordinal, (uuid, pci)) in uuids.iter().enumerate() {
            self.note(0, NoteKind::Gpu, ordinal as u32, &["NVIDIA H200", uuid, pci]);
        }
        for device in 0..uuids.len() {
            for peer in (0..uuids.len()).filter(|&peer| peer != device) {
                self.note(0, NoteKind::Peer, (device * 256 + peer) as u32, &["access=1", "native_atomics=1"]);
            }
        }
    }

    pub(crate) fn note(&mut self, at: u64, kind: NoteKind, number: u32, strings: &[&str]) {
        let strings: Vec<&[u8]> = strings.iter().map(|text| text.as_bytes()).collect();
        assert!(self.writer.note(kind, number, &strings));
        self.times.push(TICKS + at);
    }

    /// Another thread's calls from now on.
    pub(crate) fn another_segment(&mut self) {
        self.segment = Segment::default();
    }

    fn begin(&mut self, depth: usize, function: u8, site: u16, start: u64) -> OpenRecord {
        let begin = || self.segment.begin(depth, function, site, start);
        begin().unwrap_or_else(|| {
            assert_eq!(self.writer.extend(&self.segment), Ok(true));
            begin().unwrap()
        })
    }

    pub(crate) fn call(&mut self, call: &Call) {
        let start = TICKS + call.at;
        let begun = self.begin(call.depth, call.function, call.site, start);
        if call.bytes > 0 {
            begun.copies(0x7f00_0000_0000, 0x7e00_0000_0000, call.bytes, call.stream);
        }
        if let Some((src, dst)) = call.pair {
            begun.between(Some(src), Some(dst));
        }
        begun.takes(call.path);
        call.rules.iter().for_each(|&rule| begun.breaks(rule));
        if let Some(took) = call.took {
            begun.done(start + took, call.result, call.capture);
        }
        if call.is_pending {
            begun.mark_timed();
        }
        if let Some((at, took)) = call.device {
            begun.timed(Some((TICKS + at, took)));
        }
    }

    /// A copy of 1 MiB from GPU 0 to a buffer on the host, and one from there to GPU 1, with samples of their bytes; 0 for none.
    pub(crate) fn by_hand(&mut self, at: u64, samples: [u32; 2]) {
        const DEVICE: u64 = 0x7f00_0000_0000;
        const HOST: u64 = 0x7e00_0000_0000;
        let halves = [(DEVICE, HOST, (Some(0), None)), (HOST, DEVICE, (None, Some(1)))];
        for (number, ((src, dst, devices), sample)) in halves.into_iter().zip(samples).enumerate() {
            let start = TICKS + at + number as u64 * 10_000;
            let begun = self.begin(0, 2, 1, start);
            begun.copies(src, dst, 1 << 20, 0);
            begun.between(devices.0, devices.1);
            begun.takes(Taken::Host.number());
            begun.sampled(start, sample);
            begun.mark_ended();
            begun.done(start + 5_000, 0, Capture::None);
        }
    }

    /// A launch of a graph that makes this copy.
    pub(crate) fn launch(&mut self, copy: &Call) {
        let start = TICKS + copy.at;
        let launch = self.segment.begin(0, GRAPH_LAUNCH, 1, start).unwrap();
        launch.copies(0, 0, 0, copy.stream);
        launch.done(start + 1_300, 0, Capture::None);
        let part = self.segment.begin(1, PART, 0, start).unwrap();
        part.between(copy.pair.map(|(src, _)| src), copy.pair.map(|(_, dst)| dst));
        part.takes(copy.path);
        part.set_part_of(launch, 1, copy.bytes);
    }

    /// The thread waits for its stream, and does not return from that.
    pub(crate) fn wait(&mut self, at: u64) {
        assert!(self.segment.waits(STREAM_SYNCHRONIZE, 1, 0x5500, TICKS + at));
    }

    /// A call of the runtime with the driver's inside.
    pub(crate) fn calls(&mut self, call: &Call) {
        self.call(call);
        self.call(&call.inside());
    }

    /// Gives the file known times, and threads known numbers, in order of their appearance: 100 and so on.
    pub(crate) fn finish(self) -> PathBuf {
        self.exit.into_iter().for_each(|status| self.writer.exits(status));
        let mut bytes = fs::read(&self.path).unwrap();
        let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
        put(24, &self.process.to_le_bytes());
        put(28, &1u32.to_le_bytes());
        put(64, &[0; 64 * 24]);
        for (slot, offset) in [0, 1_000_000].into_iter().enumerate() {
            for (word, origin) in [TICKS, TICKS, self.origin].into_iter().enumerate() {
                put(64 + slot * 24 + word * 8, &(origin + offset).to_le_bytes());
            }
        }
        let mut times = self.times.iter();
        let mut thread = 99u32;
        let header_bytes = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
        for chunk in bytes[header_bytes..].chunks_exact_mut(CHUNK_BYTES) {
            match chunk[0] {
                1 => {
                    thread += u32::from(chunk[8..16] == [0; 8]);
                    chunk[4..8].copy_from_slice(&thread.to_le_bytes());
                    chunk[16..32].copy_from_slice(b"main\0\0\0\0\0\0\0\0\0\0\0\0");
                }
                2 => stamp(&mut chunk[64..], &mut times),
                _ => {}
            }
        }
        assert_eq!(times.next(), None);
        fs::write(&self.path, bytes).unwrap();
        self.path
    }
}

/// Gives the notes of a chunk their times.
fn stamp<'a>(mut notes: &mut [u8], times: &mut impl Iterator<Item = &'a u64>) {
    while notes.len() >= 24 && notes[20..24] != [0; 4] {
        let length = u32::from_le_bytes(notes[..4].try_into().unwrap()) as usize;
        notes[12..20].copy_from_slice(&times.next().unwrap().to_le_bytes());
        notes = &mut notes[24 + length.next_multiple_of(8)..];
    }
}
