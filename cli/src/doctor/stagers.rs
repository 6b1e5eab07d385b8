//! Measures who stages copies faster, the driver or p2pshim: on one link, and on all at once, where each GPU sends to the next. The process
//! is preloaded, and its pairs have no access.

use std::ffi::{CStr, c_char, c_int};
use std::panic::resume_unwind;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use libloading::os::unix::Library;
use p2pshim_host::stagers::{Rates, Stagers};

use super::cuda::{Address, Context, Device, Driver, Result, Stream};

/// Rounds of each stager, in turn.
const SAMPLES: usize = 3;
/// Bytes of a sample on each link, at least.
const ENOUGH: usize = 128 << 20;
/// Copies of a sample.
const FEWEST: usize = 2;
const MOST: usize = 8;
/// Part of a GPU's free memory that is taken, at most.
const PART: usize = 3;

/// Copies from a GPU's memory to that of the next.
struct Link {
    contexts: [Context; 2],
    from: Address,
    to: Address,
    stream: Stream,
}

/// Measures; hands on the result for each size and number of links. Nothing, if p2pshim is not there or the GPUs lack memory.
pub(super) fn measure(driver: &Driver, devices: &[Device], found: impl Fn(usize, bool, Rates)) -> Result<()> {
    let Some(set_stager) = stager() else { return Ok(()) };
    let is_simulated = driver.is_simulated(devices);
    let contexts = devices.iter().map(|&device| driver.context(device)).collect::<Result<Vec<_>>>()?;
    let free = contexts.iter().map(|&context| Ok(driver.memory(context)?.0)).collect::<Result<Vec<_>>>()?;
    let most = free.into_iter().min().unwrap_or_default() / PART;
    // Simulated GPUs copy alike whatever the size.
    let size = |bytes: u64| if is_simulated { Stagers::sizes()[0] as usize } else { bytes as usize };
    let sizes: Vec<usize> = Stagers::sizes().into_iter().map(size).filter(|&bytes| bytes <= most).collect();
    let Some(&largest) = sizes.iter().max() else { return Ok(()) };
    let next = contexts.iter().cycle().skip(1);
    let links = contexts.iter().zip(next).map(|(&from, &to)| {
        let memory = [driver.allocate(from, largest)?, driver.allocate(to, largest)?];
        Ok(Link { contexts: [from, to], from: memory[0], to: memory[1], stream: driver.stream(from)? })
    });
    let links = links.collect::<Result<Vec<_>>>()?;
    let samples = if is_simulated { 1 } else { SAMPLES };
    // Alone first: after a copy of several links the next take less of their rings for a while.
    for (are_all_busy, links) in [(false, links.get(..1).unwrap_or_default()), (true, &links)] {
        for (class, &bytes) in sizes.iter().enumerate() {
            let copies = if is_simulated { FEWEST } else { (ENOUGH / bytes).clamp(FEWEST, MOST) };
            let mut speeds = [Vec::new(), Vec::new()];
            // The first of each makes what it takes.
            for sample in 0..=samples {
                for (stager, speeds) in STAGERS.into_iter().zip(&mut speeds) {
                    if !set_stager(stager) {
                        return Ok(());
                    }
                    let speed = at_once(driver, links, bytes, copies)?;
                    if sample > 0 {
                        speeds.push(speed);
                    }
                }
            }
            let [by_driver, by_shim] = speeds.map(median);
            found(class, are_all_busy, Rates { driver: by_driver, shim: by_shim });
        }
    }
    Ok(())
}

/// The stagers, as values of the option.
const STAGERS: [&CStr; 2] = [c"driver", c"always"];

/// The library's function that sets options, for that of who stages; none if the library is not in this process.
fn stager() -> Option<impl Fn(&CStr) -> bool> {
    type Set = unsafe extern "C" fn(*const c_char, *const c_char) -> c_int;
    // SAFETY: the type is that of include/p2pshim.h.
    let set = *unsafe { Library::this().get::<Set>(b"p2pshim_option_set\0") }.ok()?;
    // SAFETY: both are C strings.
    Some(move |value: &CStr| unsafe { set(c"P2PSHIM_STAGING".as_ptr(), value.as_ptr()) == 0 })
}

/// GB/s a link, while each makes so many copies from a thread of its own: the driver's calls hold their callers.
fn at_once(driver: &Driver, links: &[Link], bytes: usize, copies: usize) -> Result<f64> {
    let enter = |link: &Link| driver.enter(link.contexts[0]);
    let make = |link: &Link| {
        let [from, to] = link.contexts;
        (0..copies).try_for_each(|_| driver.copy((link.to, to), (link.from, from), bytes, link.stream))?;
        driver.wait(link.stream)
    };
    Ok((bytes * copies) as f64 / time_of_all(links, enter, make)?.as_nanos().max(1) as f64)
}

/// The time from the begin of the first to the end of the last, each made by a thread of its own. The threads take their own times: one
/// that waits for them may get the processor back only when they are done.
fn time_of_all<T: Sync>(
    all: &[T],
    prepare: impl Fn(&T) -> Result<()> + Sync,
    make: impl Fn(&T) -> Result<()> + Sync,
) -> Result<Duration> {
    let barrier = Barrier::new(all.len());
    let timed = |one: &T| {
        let prepared = prepare(one);
        barrier.wait();
        prepared?;
        let begun = Instant::now();
        make(one).map(|()| [begun, Instant::now()])
    };
    let times = thread::scope(|scope| {
        let threads: Vec<_> = all.iter().map(|one| scope.spawn(|| timed(one))).collect();
        let ended = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        ended.collect::<Result<Vec<_>>>()
    })?;
    let span = times.into_iter().reduce(|[begun, ended], [first, last]| [begun.min(first), ended.max(last)]);
    Ok(span.map_or(Duration::ZERO, |[begun, ended]| ended - begun))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn time_of_all_is_no_shorter_than_the_work_on_a_busy_machine() {
        let work = [(); 32];
        for _ in 0..20 {
            let seen = Mutex::new(Vec::new());
            let spin = |(): &()| {
                let begun = Instant::now();
                let sum = (0..200_000u64).fold(0, |sum, number| std::hint::black_box(sum ^ number));
                seen.lock().unwrap().push((begun, Instant::now(), sum));
                Ok(())
            };
            let time = time_of_all(&work, |()| Ok(()), spin).unwrap();
            let seen = seen.into_inner().unwrap();
            let first = seen.iter().map(|(begun, ..)| *begun).min().unwrap();
            let last = seen.iter().map(|(_, ended, _)| *ended).max().unwrap();
            assert!(time >= last - first, "{time:?} of {:?}", last - first);
        }
    }
}
