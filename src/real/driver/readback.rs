//! The driver's calls by which a copy is read back ([`crate::policy::readback`]). None waits for a device.

use super::RealDriver;
use super::contexts::{on_stream, within};
use super::staging::{copy_half, follow, have_program_follow, is_over, record, record_on_program};
use crate::api::abi::Code;
use crate::policy::readback::{Difference, Reader, Reading};

impl Reader for RealDriver {
    fn come_after(&self, reading: &Reading) -> Result<(), Code> {
        let &Reading { ref ring, stream, per_thread, .. } = reading;
        on_stream(ring.contexts[0].0, stream, || record_on_program(ring.begins, (stream, per_thread)))
    }

    fn come_before(&self, reading: &Reading) -> Result<(), Code> {
        let &Reading { ref ring, stream, per_thread, .. } = reading;
        on_stream(ring.contexts[0].0, stream, || have_program_follow((stream, per_thread), ring.ends))
    }

    fn read_back(&self, reading: &Reading) -> Result<(), Code> {
        let ring = &reading.ring;
        let ([_, (src, _), (dst, _)], [from, to], [filled, ..]) = (ring.contexts, ring.streams, ring.filled);
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
        read.and(within(dst, || record(ring.ends, to)))
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
