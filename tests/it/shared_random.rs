//! Jobs of four ranks that share memory, drawn from a seed: the report of all their traces has the pairs and the bytes that the ranks have
//! counted. Each rank is told one step at a time, so nothing depends on time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::panic;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::support::soak::soak;
use crate::support::{command, json_report, path, scratch, shim};

/// Jobs of `make test`, and of `make soak`.
const JOBS: [u32; 2] = [20, 2000];
/// Seeds that have found memory taken for what was open at its address before, by another handle.
const KEPT: [u32; 3] = [100_006, 100_038, 300_066];
/// Jobs at a time; they sleep more than they compute.
const AT_A_TIME: usize = 4;
/// Failures that are told.
const TOLD: usize = 5;
const RANKS: usize = 4;
const STEPS: usize = 160;
const WAYS: [How; 3] = [How::Ipc, How::Vmm, How::Pool];
/// Copies that name devices, which are recorded within one GPU too, and others.
const PEER: [&str; 3] = ["peer", "peer_async", "3d_peer"];
const REGULAR: [&str; 8] = ["usual", "async", "2d", "3d", "driver", "unified", "batch", "graph"];

/// The source and the destination of copies, by UUID, and `-` for memory that the report cannot place.
type Pairs = BTreeMap<[String; 2], u64>;

/// Numbers that a seed gives.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % end as u64) as usize
    }

    fn is(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        if of.is_empty() { None } else { of.get(self.below(of.len())) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum How {
    Ipc,
    Vmm,
    Pool,
}

impl How {
    fn word(self) -> &'static str {
        ["ipc", "vmm", "pool"][self as usize]
    }

    /// Bytes of memory: of few sizes where only the size tells descriptors apart.
    fn bytes(self, random: &mut Random) -> usize {
        match self {
            Self::Vmm => (1 + random.below(3)) << 21,
            _ => 8192 + 64 * random.below(1000),
        }
    }
}

/// By what a rank's trace knows where memory lies.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Gpu(usize),
    /// The report finds whose it is.
    Handle(String),
    /// A descriptor of memory of a GPU that the rank does not see, by the number of the memory: the report knows the bytes.
    Descriptor(usize),
}

/// Memory of a rank.
#[derive(Clone)]
struct Memory {
    number: usize,
    how: How,
    gpu: usize,
    bytes: usize,
    place: Place,
    /// Another process owns it: the handle, and the device that opened it.
    handle: Option<(String, usize)>,
}

/// Memory that a process lets others open.
#[derive(Clone)]
struct Export {
    process: u32,
    number: usize,
    how: How,
    gpu: usize,
    bytes: usize,
    handle: String,
}

/// A process, the GPUs that it sees in their order, and its memory.
struct Rank {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    sees: Vec<usize>,
    memories: Vec<Memory>,
    /// Where the report places memory of GPUs that are not seen, as known when it was first copied.
    placed: BTreeMap<usize, Option<usize>>,
}

impl Rank {
    /// The answer to a command: its words after `ok`, or none if it was refused.
    fn tell(&mut self, command: &str) -> Option<Vec<String>> {
        writeln!(self.input, "{command}").unwrap();
        self.hear(command)
    }

    fn hear(&mut self, command: &str) -> Option<Vec<String>> {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let mut words = line.split_whitespace().map(str::to_owned);
        match words.next().as_deref() {
            Some("ok") => Some(words.collect()),
            Some("refused") => None,
            _ => panic!("{command}: no answer"),
        }
    }

    fn device(&self, gpu: usize) -> Option<usize> {
        self.sees.iter().position(|&it| it == gpu)
    }

    fn has(&self, handle: &str) -> bool {
        self.memories.iter().any(|it| it.handle.as_ref().is_some_and(|(own, _)| own == handle))
    }
}

/// Counts of each thing that the jobs did, so that none is left out.
#[derive(Debug, Default)]
struct Done {
    copies: BTreeSet<(How, bool, &'static str)>,
    refused: u32,
    killed: u32,
    unknown: u32,
    outlived: u32,
}

struct Job {
    random: Random,
    folder: PathBuf,
    gpus: usize,
    environment: Vec<(String, String)>,
    /// Under `p2pshim run`, whose end this is.
    run: Option<(Child, BufReader<ChildStdout>)>,
    ranks: Vec<Rank>,
    exports: Vec<Export>,
    /// Each descriptor of mapped memory: its process, its GPU, its bytes.
    descriptors: Vec<(u32, usize, usize)>,
    numbers: usize,
    counted: Pairs,
    steps: Vec<String>,
    done: Done,
}

impl Job {
    fn new(seed: u32) -> Self {
        let mut random = Random(seed.into());
        let (folder, gpus) = (scratch(&format!("job-{seed}")), 2 + random.below(3));
        fs::create_dir_all(folder.join("traces")).unwrap();
        let is_run = random.is(50);
        let mut job = Self {
            random,
            folder,
            gpus,
            environment: Vec::new(),
            run: None,
            ranks: Vec::new(),
            exports: Vec::new(),
            descriptors: Vec::new(),
            numbers: 0,
            counted: Pairs::new(),
            steps: Vec::new(),
            done: Done::default(),
        };
        job.set_up(is_run);
        for _ in 0..RANKS {
            let rank = job.start();
            job.ranks.push(rank);
        }
        job
    }

    /// The ranks get the environment that `p2pshim run` gives its program, which lasts as long as the job; or that of a bare preload.
    fn set_up(&mut self, is_run: bool) {
        let set = |name: &str, value: &Path| (name.to_owned(), value.to_string_lossy().into_owned());
        let traces = self.folder.join("traces");
        let mut environment = vec![
            set("LD_LIBRARY_PATH", &path("target/sim/lib")),
            set("P2PSIM_DEVICES", Path::new(&self.gpus.to_string())),
            set("XDG_CACHE_HOME", Path::new("/dev/null")),
        ];
        environment.extend(["PATH", "HOME"].map(|name| (name.to_owned(), std::env::var(name).unwrap_or_default())));
        if is_run {
            let mut run = Command::new(command());
            run.args(["run", "--no-check", "--no-report", "--trace"]).arg(&traces);
            run.args(["sh", "-c", "env; echo end; exec cat"]).env_clear().envs(environment.iter().cloned());
            let mut child = run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(self.errors()).spawn().unwrap();
            let mut output = BufReader::new(child.stdout.take().unwrap());
            environment.clear();
            loop {
                let mut line = String::new();
                assert!(output.read_line(&mut line).unwrap() > 0, "{}", self.said());
                match line.trim_end().split_once('=') {
                    Some((name, value)) => environment.push((name.to_owned(), value.to_owned())),
                    None => break,
                }
            }
            self.run = Some((child, output));
        } else {
            environment.extend([set("LD_PRELOAD", &shim()), set("P2PSHIM_TRACE", &traces)]);
        }
        self.environment = environment;
    }

    fn errors(&self) -> File {
        File::options().append(true).create(true).open(self.folder.join("errors")).unwrap()
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.join("errors")).unwrap_or_default()
    }

    /// Starts a rank that sees all GPUs, one, all in reverse, or some.
    fn start(&mut self) -> Rank {
        let mut sees: Vec<usize> = (0..self.gpus).collect();
        match self.random.below(4) {
            0 => {}
            1 => sees = vec![self.random.below(self.gpus)],
            2 => sees.reverse(),
            _ => {
                sees.remove(self.random.below(self.gpus));
            }
        }
        let list: Vec<String> = sees.iter().map(usize::to_string).collect();
        let mut program = Command::new(path("target/c-tests/sharing_rank-13"));
        program.env_clear().envs(self.environment.iter().cloned()).env("CUDA_VISIBLE_DEVICES", list.join(","));
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(self.errors()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut rank = Rank { child, input, output, sees, memories: Vec::new(), placed: BTreeMap::new() };
        self.steps.push(format!("process {} sees {list:?}", rank.child.id()));
        rank.hear("its start").unwrap();
        rank
    }

    fn tell(&mut self, rank: usize, command: &str) -> Option<Vec<String>> {
        self.steps.push(format!("{}: {command}", self.ranks[rank].child.id()));
        self.ranks[rank].tell(command)
    }

    fn step(&mut self) {
        let rank = self.random.below(RANKS);
        match self.random.below(100) {
            0..16 => self.allocate(rank),
            16..30 => self.export(rank),
            30..52 => self.open(rank),
            52..87 => self.copy(rank),
            87..96 => self.close(rank),
            96..98 => self.end(rank, true),
            _ => self.end(rank, false),
        }
    }

    fn allocate(&mut self, rank: usize) {
        let how = *self.random.one(&WAYS).unwrap();
        let (device, bytes) = (self.random.below(self.ranks[rank].sees.len()), how.bytes(&mut self.random));
        let (gpu, number) = (self.ranks[rank].sees[device], self.numbers);
        self.numbers += 1;
        self.tell(rank, &format!("alloc {number} {} {device} {bytes}", how.word())).unwrap();
        self.ranks[rank].memories.push(Memory { number, how, gpu, bytes, place: Place::Gpu(gpu), handle: None });
    }

    fn export(&mut self, rank: usize) {
        let own: Vec<Memory> = self.ranks[rank].memories.iter().filter(|it| it.handle.is_none()).cloned().collect();
        let Some(Memory { number, how, gpu, bytes, .. }) = self.random.one(&own).cloned() else { return };
        let process = self.ranks[rank].child.id();
        if how == How::Vmm {
            // Exports soon after memory was first copied count as before: clocks differ.
            thread::sleep(Duration::from_millis(3));
            self.descriptors.push((process, gpu, bytes));
        }
        let handle = self.tell(rank, &format!("export {number}")).unwrap().join(" ");
        self.exports.push(Export { process, number, how, gpu, bytes, handle });
    }

    fn open(&mut self, rank: usize) {
        let own = self.ranks[rank].child.id();
        let theirs: Vec<Export> = self.exports.iter().filter(|it| it.process != own).cloned().collect();
        let Some(Export { process, how, gpu, bytes, handle, .. }) = self.random.one(&theirs).cloned() else { return };
        let is_alive = self.ranks.iter().any(|it| it.child.id() == process);
        // A descriptor goes with its process, and a pool's pointer is opened once.
        if how != How::Ipc && !is_alive || how == How::Pool && self.ranks[rank].has(&handle) {
            return;
        }
        let (by, number) = (self.random.below(self.ranks[rank].sees.len()), self.numbers);
        self.numbers += 1;
        let whose = if how == How::Ipc { String::new() } else { format!("{process} ") };
        let uuid = uuid(gpu);
        let told = format!("open {number} {} {by} {uuid} {bytes} {whose}{handle}", how.word());
        if self.tell(rank, &told).is_none() {
            self.done.refused += 1;
            return;
        }
        let it = &mut self.ranks[rank];
        let is_seen = it.device(gpu).is_some();
        // The driver tells of memory that is not opened by an IPC handle, but not where the current device may stand for one that is hidden.
        let is_told = match how {
            How::Ipc => false,
            How::Vmm => is_seen,
            How::Pool => is_seen && it.sees[by] != gpu,
        };
        let place = match how {
            _ if is_told => Place::Gpu(gpu),
            How::Vmm => Place::Descriptor(number),
            _ if self.run.is_some() && is_alive => Place::Gpu(gpu),
            _ => Place::Handle(handle.clone()),
        };
        let handle = Some((handle, by));
        if how == How::Ipc {
            // It has the same address, of which the trace knows what it knew last.
            let again = it.memories.iter_mut().filter(|it| it.handle == handle);
            again.for_each(|it| it.place = place.clone());
        }
        it.memories.push(Memory { number, how, gpu, bytes, place, handle });
    }

    fn copy(&mut self, rank: usize) {
        let all = self.ranks[rank].memories.clone();
        let opened: Vec<Memory> = all.iter().filter(|it| it.handle.is_some()).cloned().collect();
        let is_theirs = self.random.is(85);
        let Some(one) = self.random.one(if is_theirs { &opened } else { &all }).cloned() else { return };
        let others: Vec<Memory> = all.into_iter().filter(|it| it.number != one.number).collect();
        let Some(other) = self.random.one(&others).cloned() else { return };
        let (dst, src) = if self.random.is(50) { (one, other) } else { (other, one) };
        let bytes = 64 * (1 + self.random.below(dst.bytes.min(src.bytes) / 64));
        let offset = |random: &mut Random, memory: &Memory| random.below(memory.bytes - bytes + 1);
        let (to, from) = (offset(&mut self.random, &dst), offset(&mut self.random, &src));
        let is_peer = self.random.is(30);
        let form = *self.random.one(if is_peer { &PEER[..] } else { &REGULAR[..] }).unwrap();
        let by = self.random.below(self.ranks[rank].sees.len());
        let command = format!("copy {form} {by} {} {to} {} {from} {bytes}", dst.number, src.number);
        let answer = self.tell(rank, &command).unwrap();
        let [said_src, said_dst, bytes] = &answer[..] else { panic!("{answer:?}") };
        let counted = [(said_src, &src), (said_dst, &dst)].map(|(said, memory)| {
            assert_eq!(*said, uuid(memory.gpu));
            let is_seen = self.ranks[rank].device(memory.gpu).is_some();
            if memory.handle.is_some() {
                self.done.copies.insert((memory.how, is_seen, form));
            }
            match self.placed(rank, memory) {
                Some(gpu) => uuid(gpu),
                None => {
                    self.done.unknown += 1;
                    "-".to_owned()
                }
            }
        });
        // Within one GPU only those are recorded that name devices, or of which the rank's trace does not know it.
        if is_peer || src.place != dst.place {
            *self.counted.entry(counted).or_default() += bytes.parse::<u64>().unwrap();
        }
    }

    /// Where the report places memory: of a descriptor it knows the bytes, and all that were exported before the first copy may be meant.
    fn placed(&mut self, rank: usize, memory: &Memory) -> Option<usize> {
        let Place::Descriptor(number) = memory.place else { return Some(memory.gpu) };
        let own = self.ranks[rank].child.id();
        let fit = self.descriptors.iter().filter(|(process, _, bytes)| *process != own && *bytes == memory.bytes);
        let fit: BTreeSet<usize> = fit.map(|(_, gpu, _)| *gpu).collect();
        let one = fit.first().copied().filter(|_| fit.len() == 1);
        *self.ranks[rank].placed.entry(number).or_insert(one)
    }

    fn close(&mut self, rank: usize) {
        let Some(it) = self.random.one(&self.ranks[rank].memories).cloned() else { return };
        let process = self.ranks[rank].child.id();
        let is_it = |export: &Export| export.process == process && export.number == it.number;
        if it.handle.is_none() && it.how == How::Pool {
            // Undefined while others have it open: its place in the pool is given away.
            let handles: Vec<&str> = self.exports.iter().filter(|it| is_it(it)).map(|it| &*it.handle).collect();
            if self.ranks.iter().any(|rank| handles.iter().any(|handle| rank.has(handle))) {
                return;
            }
            self.exports.retain(|it| !is_it(it));
        } else if it.handle.is_none() && it.how == How::Vmm {
            self.done.outlived += 1;
        }
        self.ranks[rank].memories.retain(|other| other.number != it.number);
        self.tell(rank, &format!("close {}", it.number)).unwrap();
    }

    /// Ends a rank, which is killed or comes to its end, and starts it again.
    fn end(&mut self, rank: usize, is_killed: bool) {
        let started = self.start();
        let mut gone = std::mem::replace(&mut self.ranks[rank], started);
        self.steps.push(format!("process {} ends, killed: {is_killed}", gone.child.id()));
        if is_killed {
            gone.child.kill().unwrap();
            self.done.killed += 1;
        }
        gone.end(is_killed);
    }

    fn finish(&mut self) -> Result<(), String> {
        for rank in std::mem::take(&mut self.ranks) {
            rank.end(false);
        }
        if let Some((mut child, _)) = self.run.take() {
            drop(child.stdin.take());
            assert!(child.wait().unwrap().success(), "{}", self.said());
        }
        let reported = reported(&self.folder.join("traces"));
        if reported == self.counted {
            return Ok(());
        }
        let all: BTreeSet<_> = reported.keys().chain(self.counted.keys()).collect();
        let of = |pairs: &Pairs, pair| pairs.get(pair).copied().unwrap_or(0);
        let lines = all.into_iter().filter(|pair| of(&reported, *pair) != of(&self.counted, *pair));
        let lines = lines
            .map(|pair| format!("  {pair:?}: {} counted, {} reported\n", of(&self.counted, pair), of(&reported, pair)));
        Err(lines.collect())
    }
}

impl Rank {
    fn end(mut self, is_killed: bool) {
        drop(self.input);
        assert_eq!(self.child.wait().unwrap().success(), !is_killed);
    }
}

fn uuid(gpu: usize) -> String {
    format!("GPU-70327073-696d-2047-5055-202e2e2e2e{gpu:02}")
}

/// The pairs that have bytes in the report of a folder.
fn reported(folder: &Path) -> Pairs {
    let report = json_report(folder);
    let uuid = |gpu: &Value| report["gpus"][gpu.as_u64().unwrap() as usize]["uuid"].as_str().unwrap_or("-").to_owned();
    let mut pairs = Pairs::new();
    for pair in report["pairs"].as_array().unwrap() {
        let bytes = pair["bytes"].as_u64().unwrap();
        if bytes > 0 {
            *pairs.entry([uuid(&pair["src"]), uuid(&pair["dst"])]).or_default() += bytes;
        }
    }
    pairs
}

/// Runs a job of so many steps. An error tells what is wrong.
fn run(seed: u32, steps: usize) -> Result<Done, String> {
    let mut job = Job::new(seed);
    (0..steps).for_each(|_| job.step());
    let compared = job.finish();
    if let Err(wrong) = compared {
        let kind = if job.environment.iter().any(|(name, _)| name == "P2PRUN_EXPORTS") { "run" } else { "bare" };
        let list = job.folder.join("steps");
        fs::write(&list, job.steps.join("\n")).unwrap();
        return Err(format!("seed {seed}, {kind}; steps and traces in {}\n{wrong}", job.folder.display()));
    }
    fs::remove_dir_all(&job.folder).unwrap();
    Ok(job.done)
}

#[test]
fn report_of_ranks_that_once_had_wrong_pairs_is_right() {
    for seed in KEPT {
        run(seed, STEPS).unwrap();
    }
}

#[test]
fn report_of_random_ranks_has_the_pairs_and_bytes_that_they_counted() {
    let [first, count] = soak().map_or([0, JOBS[0]], |more| [more, JOBS[1]]);
    let (next, all) = (AtomicU32::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    let seed = first.wrapping_add(number);
                    let one = panic::catch_unwind(|| run(seed, STEPS));
                    all.lock().unwrap().push(one.unwrap_or_else(|_| Err(format!("seed {seed}: a rank has failed"))));
                }
            });
        }
    });
    let (done, wrong): (Vec<_>, Vec<_>) = all.into_inner().unwrap().into_iter().partition(Result::is_ok);
    let wrong: Vec<String> = wrong.into_iter().filter_map(Result::err).collect();
    let told = wrong.iter().take(TOLD).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} of {count} jobs from {first}:\n{told}", wrong.len());
    let mut sum = Done::default();
    for one in done.into_iter().flatten() {
        sum.copies.extend(one.copies);
        sum.refused += one.refused;
        sum.killed += one.killed;
        sum.unknown += one.unknown;
        sum.outlived += one.outlived;
    }
    let every = WAYS.iter().flat_map(|how| [false, true].map(|is_seen| (*how, is_seen)));
    let every = every.flat_map(|(how, is_seen)| [true, false].map(|is_peer| (how, is_seen, is_peer)));
    let done = |one: &(How, bool, bool)| {
        sum.copies.iter().any(|&(how, is_seen, form)| (how, is_seen, PEER.contains(&form)) == *one)
    };
    let missing: Vec<_> = every.filter(|one| !done(one)).collect();
    assert_eq!(missing, [], "no such copies");
    let forms: BTreeSet<_> = sum.copies.iter().map(|(.., form)| *form).collect();
    assert_eq!(forms.len(), PEER.len() + REGULAR.len(), "{forms:?}");
    assert!([sum.refused, sum.killed, sum.unknown, sum.outlived].iter().all(|&count| count > 0), "{sum:?}");
}
