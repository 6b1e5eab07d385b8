//! Memory of another process, which stands in records with a number in place of a device: on which GPU it lies, and whose it is.
//!
//! A process notes what it lets others open, and what it has opened. Only all traces together tell more, so this comes after all are read.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use p2pshim_trace::Path;

use super::gpus::{Identity, is_remote};
use super::{PairTotal, Totals};
use crate::report::buckets::{self, Buckets};
use crate::report::model::{BetweenProcesses, Does, File, Gpu};
use crate::report::names::{Names, Opened};
use crate::report::paths::Taken;
use crate::report::tally::PairTally;

/// Clocks of two processes of a machine differ by less, as their traces have them.
const SLACK: u64 = 1_000_000;

/// Memory that a process lets others open.
#[derive(Debug)]
struct Export {
    file: usize,
    gpu: usize,
    how: String,
    bytes: u64,
    time: u64,
}

/// Memory of another process that this one has opened, and that a number stands for in its records.
#[derive(Debug)]
struct Open {
    file: usize,
    all: Vec<Opened>,
}

/// Copies of a process with memory of others.
#[derive(Debug)]
struct Copies {
    file: usize,
    ordinals: [u8; 2],
    /// As they were known when the file was read.
    gpus: [usize; 2],
    calls: u64,
    bytes: u64,
    times: Buckets,
    last: u64,
}

/// The notes of all files about it.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// By the handle; that of a descriptor is empty.
    exports: HashMap<String, Vec<Export>>,
    opens: HashMap<(usize, u8), Open>,
    /// By the handle: the processes that have freed the memory, each with the time.
    freed: HashMap<String, Vec<(usize, u64)>>,
    copies: Vec<Copies>,
    /// Memory that a process has never closed: its handle and bytes.
    never_closed: Vec<(usize, String, u64)>,
    /// Memory that a process has opened while the GPU where it lies was current: its handle and the GPU.
    opened_where_it_lies: Vec<(usize, String, u8)>,
}

/// Where memory of another process lies, and whose it is.
#[derive(Clone, Copy)]
struct Found {
    gpu: usize,
    owner: Option<usize>,
}

impl Shared {
    /// Keeps the copies of a pair with memory of others until it is known where that lies.
    pub(super) fn keep(&mut self, file: usize, ordinals: [u8; 2], gpus: [usize; 2], pair: &PairTally) {
        let sums = pair.paths.values().map(|path| path.sums());
        let (calls, bytes) =
            sums.fold((0, 0u64), |(calls, bytes), sums| (calls + sums.calls, bytes.saturating_add(sums.bytes)));
        self.copies.push(Copies { file, ordinals, gpus, calls, bytes, times: pair.buckets.clone(), last: pair.last });
    }
}

impl Shared {
    /// The processes that share memory, each with the GPU, as it was known when its file was read.
    pub(super) fn exporters(&self) -> impl Iterator<Item = (usize, usize)> {
        self.exports.values().flatten().map(|it| (it.file, it.gpu))
    }
}

impl Totals {
    /// Keeps what a file says of memory that is shared.
    pub(super) fn add_shared(&mut self, file: &mut File, names: &Names) {
        let is_there = |ordinal: &u8| names.devices.is_empty() || names.devices.contains_key(ordinal);
        for exported in names.exported.iter().filter(|it| is_there(&it.ordinal)) {
            let gpu = self.gpu(file, names, exported.ordinal, names.devices.get(&exported.ordinal));
            let export =
                Export { file: file.index, gpu, how: exported.how.clone(), bytes: exported.bytes, time: exported.time };
            self.shared.exports.entry(exported.handle.clone()).or_default().push(export);
        }
        let never_closed = names.never_closed().map(|(handle, bytes)| (file.index, handle.to_owned(), bytes));
        self.shared.never_closed.extend(never_closed);
        let there = names.opened_where_it_lies().map(|(handle, gpu)| (file.index, handle.to_owned(), gpu));
        self.shared.opened_where_it_lies.extend(there);
        for (handle, &time) in &names.freed {
            self.shared.freed.entry(handle.clone()).or_default().push((file.index, time));
        }
        for (&number, all) in names.opened.iter().filter(|(number, _)| is_remote(**number)) {
            self.shared.opens.insert((file.index, number), Open { file: file.index, all: all.clone() });
        }
    }

    /// Puts GPUs in the place of memory of other processes, once files are in order. Returns which one is meant by each number of a GPU, and what was copied between
    /// processes.
    pub(super) fn resolve(&mut self) -> (Vec<usize>, Vec<BetweenProcesses>) {
        let remotes: Vec<(usize, usize, u8)> = (self.gpus.iter().enumerate())
            .filter_map(|(gpu, (identity, _))| match *identity {
                Identity::Remote(file, number) => Some((gpu, file, number)),
                _ => None,
            })
            .collect();
        let mut found = Vec::new();
        for (gpu, file, number) in remotes {
            let it = self.find(file, number);
            if let Some(file) = self.files.get_mut(file) {
                file.owners.insert(number, it.owner);
            }
            found.push((gpu, it.gpu));
        }
        let mut meant: Vec<usize> = (0..self.gpus.len()).collect();
        for (gpu, place) in found {
            meant.get_mut(gpu).into_iter().for_each(|it| *it = place);
        }
        let of = |gpu: usize| meant.get(gpu).copied().unwrap_or(gpu);
        for (pair, total) in std::mem::take(&mut self.pairs) {
            let place = pair.map(of);
            let total = if place == pair { total } else { total.placed(place) };
            self.pairs.entry(place).or_default().merge(total);
        }
        self.shares.iter_mut().for_each(|(_, pair, ..)| *pair = pair.map(of));
        self.shares.retain(|(_, [src, dst], ..)| src != dst);
        let copies = std::mem::take(&mut self.shared.copies);
        for copies in copies.iter().filter(|it| of(it.gpus[0]) != of(it.gpus[1])) {
            if let Some((_, times)) = self.times.iter_mut().find(|(file, _)| *file == copies.file) {
                times.merge(copies.times.clone(), buckets::MOST);
            }
        }
        let rows = self.rows(&copies, of);
        for (file, handle, bytes) in std::mem::take(&mut self.shared.never_closed) {
            let owners = self.shared.freed.get(&handle).into_iter().flatten();
            let is_freed = { owners }.any(|&(owner, _)| owner != file && self.are_of_one_machine(owner, file));
            if let Some(file) = self.files.get_mut(file).filter(|_| is_freed) {
                file.never_closed.0 += 1;
                file.never_closed.1 = file.never_closed.1.saturating_add(bytes);
            }
        }
        for (file, handle, ordinal) in std::mem::take(&mut self.shared.opened_where_it_lies) {
            let exports = self.shared.exports.get(&handle).into_iter().flatten();
            let mut owners = exports.map(|it| it.file).filter(|&it| it != file && self.are_of_one_machine(it, file));
            let owner = owners.next();
            if let (Some(owner), Some(file)) = (owner, self.files.get_mut(file)) {
                file.may_share_gpu.get_or_insert((owner, ordinal));
            }
        }
        (meant, rows)
    }

    /// The copies between processes, added up by who copied between which memory of whom.
    fn rows(&self, copies: &[Copies], of: impl Fn(usize) -> usize) -> Vec<BetweenProcesses> {
        let owner = |file: usize, number: u8| self.files.get(file)?.owners.get(&number).copied().flatten();
        let mut rows: BTreeMap<_, BetweenProcesses> = BTreeMap::new();
        for &Copies { file, ordinals, gpus, calls, bytes, last, .. } in
            copies.iter().filter(|it| is_between(it.ordinals))
        {
            let [src, dst] = gpus.map(&of);
            let [src_file, dst_file] = ordinals.map(|it| if is_remote(it) { owner(file, it) } else { Some(file) });
            let does = match ordinals.map(is_remote) {
                [false, _] => Does::Push,
                [true, false] => Does::Pull,
                [true, true] => Does::Both,
            };
            let row = rows.entry((file, src, dst, src_file, dst_file, does)).or_insert_with(|| BetweenProcesses {
                file,
                does,
                src,
                dst,
                src_file,
                dst_file,
                ..BetweenProcesses::default()
            });
            row.calls += calls;
            row.bytes = row.bytes.saturating_add(bytes);
            for number in ordinals.into_iter().filter(|&it| is_remote(it)) {
                let opens = self.shared.opens.get(&(file, number));
                row.how.extend(opens.into_iter().flat_map(|it| &it.all).map(|it| it.how.clone()));
                row.freed += u64::from(opens.is_some_and(|it| self.is_freed(it, last)));
            }
        }
        rows.into_values().collect()
    }

    /// Whether the owner of memory had freed it when another process copied from or to it. Where one number is of all memory of a GPU, that is not
    /// known.
    fn is_freed(&self, open: &Open, copied: u64) -> bool {
        let of = |one: &Opened| {
            if one.uuid.is_some() && !one.is_visible { None } else { self.shared.freed.get(&one.handle) }
        };
        let is_it = |&(owner, time): &(usize, u64)| {
            owner != open.file && time.saturating_add(SLACK) < copied && self.are_of_one_machine(owner, open.file)
        };
        open.all.iter().filter_map(of).flatten().any(is_it)
    }

    /// Where memory of another process lies: as the opener knows; as the process that shares it says; or not known.
    fn find(&mut self, file: usize, number: u8) -> Found {
        let opens = self.shared.opens.remove(&(file, number));
        let fits: Vec<Vec<(usize, usize)>> =
            opens.iter().flat_map(|it| it.all.iter().map(|one| self.exports(it.file, one))).collect();
        let one = |all: BTreeSet<usize>| all.first().copied().filter(|_| all.len() == 1);
        let is_known = !fits.is_empty() && fits.iter().all(|them| !them.is_empty());
        let owner = one(fits.iter().flatten().map(|&(file, _)| file).collect()).filter(|_| is_known);
        let gpu = one(fits.iter().flatten().map(|&(_, gpu)| gpu).collect()).filter(|_| is_known);
        let uuid = opens.iter().flat_map(|it| &it.all).find_map(|it| it.uuid.clone());
        let host = self.files.get(file).and_then(|it| it.host.clone());
        let uuid = uuid.or_else(|| self.gpus.get(gpu?)?.1.uuid.clone());
        self.shared.opens.extend(opens.map(|opens| ((file, number), opens)));
        let gpu = match (uuid, gpu) {
            (Some(uuid), _) => self.named(file, host, uuid),
            (None, Some(gpu)) => gpu,
            (None, None) => self.numbered(Identity::Another(host.clone()), Gpu { host, ..Gpu::default() }),
        };
        Found { gpu, owner }
    }

    /// The exports that may be what was opened, each with its process and GPU. Handles are of one export; descriptors have none, and fit
    /// if the size does. If the opener names a GPU that it does not see, one number is of all memory there, and its note about the first: any export fits.
    fn exports(&self, file: usize, opened: &Opened) -> Vec<(usize, usize)> {
        let uuid = |gpu: usize| self.gpus.get(gpu).and_then(|(_, gpu)| gpu.uuid.as_ref());
        let is_other = |it: &&Export| it.file != file && self.are_of_one_machine(it.file, file);
        if let Some(named) = opened.uuid.as_ref().filter(|_| !opened.is_visible) {
            let all = self.shared.exports.values().flatten().filter(is_other);
            return all.filter(|it| uuid(it.gpu) == Some(named)).map(|it| (it.file, it.gpu)).collect();
        }
        let fits = |it: &&Export| {
            it.how == opened.how
                && it.time <= opened.time.saturating_add(SLACK)
                && (!opened.handle.is_empty() || opened.bytes == 0 || it.bytes == opened.bytes)
        };
        let all = self.shared.exports.get(&opened.handle).into_iter().flatten().filter(is_other).filter(fits);
        match opened.handle.is_empty() {
            true => all.map(|it| (it.file, it.gpu)).collect(),
            // Numbers of processes come again, and so may handles.
            false => all.max_by_key(|it| it.time).map(|it| (it.file, it.gpu)).into_iter().collect(),
        }
    }

    /// Whether two processes are of one boot of one machine: containers have names of their own.
    fn are_of_one_machine(&self, one: usize, other: usize) -> bool {
        let (Some(one), Some(other)) = (self.files.get(one), self.files.get(other)) else { return false };
        match (&one.boot_id, &other.boot_id) {
            (Some(one), Some(other)) => one == other,
            _ => one.host == other.host,
        }
    }

    /// The GPU of a UUID, for a process: one of its host; else the first that others of the machine see, in containers with other names; else
    /// one that no process sees.
    fn named(&mut self, file: usize, host: Option<String>, uuid: String) -> usize {
        let identity = Identity::Gpu(host.clone(), uuid.clone());
        // Files come in any order.
        let first = |gpu: &Gpu| {
            let files = gpu.ordinals.keys().filter_map(|by| by.parse().ok());
            files.filter(|&by| self.are_of_one_machine(by, file)).min()
        };
        let of_uuid = self.gpus.iter().enumerate().filter(|(_, (_, gpu))| gpu.uuid.as_ref() == Some(&uuid));
        let seen = of_uuid.filter_map(|(number, (_, gpu))| Some((first(gpu)?, number))).min();
        match self.gpu_numbers.get(&identity).copied().or(seen.map(|(_, number)| number)) {
            Some(gpu) => gpu,
            None => self.numbered(identity, Gpu { host, uuid: Some(uuid), ..Gpu::default() }),
        }
    }
}

/// Whether copies with such ends are between processes, and not within the memory of one.
pub(super) fn is_between(ordinals: [u8; 2]) -> bool {
    ordinals[0] != ordinals[1] && ordinals.into_iter().any(is_remote)
}

impl PairTotal {
    /// Moves copies to the GPUs where the memory lies: within one GPU no copy goes over a link.
    fn placed(self, [src, dst]: [usize; 2]) -> Self {
        if src != dst {
            return self;
        }
        let within = |taken: Taken| match taken.path {
            Some(Path::Direct) => Taken { path: Some(Path::SameDevice), ..taken },
            _ => taken,
        };
        let paths = self.paths.into_iter().map(|(taken, tally)| (within(taken), tally)).collect();
        Self { paths, buckets: Buckets::default(), ..self }
    }

    fn merge(&mut self, other: Self) {
        self.calls += other.calls;
        self.errors += other.errors;
        for (taken, path) in other.paths {
            self.paths.entry(taken).or_default().merge(path);
        }
        self.host.merge(other.host);
        self.buckets.merge(other.buckets, buckets::MOST);
        self.busy.merge(other.busy);
        for (origin, count) in other.sites {
            *self.sites.entry(origin).or_default() += count;
        }
    }
}
