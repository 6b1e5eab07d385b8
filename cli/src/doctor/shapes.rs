//! Tests of one pair in the shape of work: in memory of pools and mapped memory, and by copies in a graph.

use super::additions::words;
use super::cuda::Result;
use super::kernel;
use super::lines::Finding;
use super::memory::wrong_at;
use super::rig::LARGEST;
use super::verify::Verification;

/// How often a graph is replayed.
const REPLAYS: u64 = 1000;
/// After so many replays it is said that the test makes progress.
const PART: u64 = 100;
/// Bytes that a replay copies.
const COPIED: usize = 64 << 10;

impl Verification<'_> {
    /// Copies to memory of B to which A was granted access, and has kernels on A load from it and store to it: memory of a pool, and mapped
    /// memory.
    pub(super) fn granted(&self) -> Result<Finding> {
        let (driver, [a, b], kernel) = (&self.rig.driver, &self.sides, self.kernel()?);
        driver.enter(b.context)?;
        let of_pool @ [memory, _] = driver.pool(b.device, a.device, LARGEST, b.stream)?;
        let wrong = wrong_at(self, kernel, memory, 900)?;
        driver.enter(b.context)?;
        driver.free_pool(of_pool, b.stream)?;
        if let Some(wrong) = wrong {
            return Ok(Finding::Wrong(format!("{wrong}, in memory of a pool")));
        }
        let mapped = driver.map_granted([b.device, a.device], LARGEST)?;
        let wrong = wrong_at(self, kernel, mapped, 930)?;
        driver.unmap(mapped, LARGEST)?;
        Ok(wrong.map_or(Finding::Right, |wrong| Finding::Wrong(format!("{wrong}, in mapped memory"))))
    }

    /// Has a graph copy from A to B, and replays it. A kernel on A changes what is sent each time, and one on B adds up what arrives: a
    /// copy that is lost once leaves a wrong sum.
    pub(super) fn graph(&self) -> Result<Finding> {
        let (driver, [a, b]) = (&self.rig.driver, &self.sides);
        let kernels = [self.rig.kernel(a, kernel::REDUCE)?, self.rig.kernel(b, kernel::REDUCE)?];
        let (count, beside) = (COPIED as u64 / 8, COPIED as u64);
        let [step, _] = self.rig.patterns.part(self.number(950), COPIED);
        // A holds the step, then the data to send. B holds the received data, then the sum.
        for side in [a, b] {
            driver.write(side.context, side.memory, &vec![0; 2 * COPIED])?;
        }
        driver.write(a.context, a.memory, step)?;
        for side in [a, b] {
            driver.synchronize(side.context)?;
        }
        driver.enter(b.context)?;
        let summed = driver.event()?;
        driver.enter(a.context)?;
        let sent = driver.event()?;
        let graph = driver.capture(a.stream, || {
            driver.launch(kernels[0], (a.memory + beside, a.memory, count), a.stream)?;
            driver.copy_unified(b.memory, a.memory + beside, COPIED, a.stream)?;
            driver.record(sent, a.stream)?;
            driver.enter(b.context)?;
            driver.wait_for(b.stream, sent)?;
            driver.launch(kernels[1], (b.memory + beside, b.memory, count), b.stream)?;
            driver.record(summed, b.stream)?;
            driver.enter(a.context)?;
            driver.wait_for(a.stream, summed)
        })?;
        for _ in 0..REPLAYS / PART {
            (0..PART).try_for_each(|_| driver.replay(graph, a.stream))?;
            driver.wait(a.stream)?;
            self.entry.moves();
        }
        driver.destroy_graph(graph)?;
        [sent, summed].into_iter().try_for_each(|event| driver.destroy(event))?;
        let mut sums = vec![0; COPIED];
        driver.read(b.context, b.memory + beside, &mut sums)?;
        let times = REPLAYS * (REPLAYS + 1) / 2;
        let expected = words(step).into_iter().map(|word| word.wrapping_mul(times));
        let wrong = expected.zip(words(&sums)).filter(|(expected, found)| expected != found).count();
        Ok(match wrong {
            0 => Finding::Right,
            _ => Finding::Wrong(format!("{wrong} of {count} sums of what arrived are wrong after {REPLAYS} replays")),
        })
    }
}
