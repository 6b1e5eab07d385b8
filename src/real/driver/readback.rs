//! The driver's calls by which a copy is read back ([`crate::policy::readback`]). None waits for a device.

use super::RealDriver;
use super::contexts::within;
use super::staging::{copy_half, follow, have_program_follow, is_over, record, record_on_program};
use crate::api::abi::Code;
use crate::policy::readback::{Difference, Reader, Reading};

impl Reader for RealDriver {
    fn read_back(&self, reading: &Reading) -> Result<(), Code> {
        let &Reading { ring, stream, per_thread, .. } = reading;
        let ([(of, _), (src, _), (dst, _)], [from, to]) = (ring.contexts, ring.streams);
        let [filled, ..] = ring.filled;
        within(of, || record_on_program(ring.begins, (stream, per_thread)))?;
        let read = within(src, || {
            follow(from, ring.begins)?;
            // What was staged with the ring before.
            follow(from, ring.ends)?;
            reading.placed().try_for_each(|placed| copy_half(&reading.of_source(placed), from))?;
            record(filled, from)
        });
        let read = read.and_then(|()| {
            within(dst, || {
                follow(to, filled)?;
                reading.placed().try_for_each(|placed| copy_half(&reading.of_destination(placed), to))
            })
        });
        // Whatever became of it, the program's next work comes after what was submitted.
        let ended = within(dst, || record(ring.ends, to));
        let followed = within(of, || have_program_follow((stream, per_thread), ring.ends));
        read.and(ended).and(followed)
    }

    fn is_read(&self, reading: &Reading) -> Result<bool, Code> {
        is_over(&reading.ring)
    }

    fn difference(&self, reading: &Reading) -> Option<Difference> {
        let bytes: usize = reading.windows.iter().map(|window| window.bytes).sum();
        let side = |begins: usize| {
            // SAFETY: the ring's memory is never freed, and has two such sides; a reading has no more bytes than a side. They have been
            // read, and nothing is written there before the ring is given back.
            unsafe {
                std::slice::from_raw_parts((reading.ring.host.address + begins) as *const u8, bytes.min(reading.side()))
            }
        };
        reading.difference(side(0), side(reading.side()))
    }
}
