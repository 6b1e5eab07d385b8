//! The driver's calls by which a copy is read back ([`crate::policy::readback`]). None waits for a device.

use super::RealDriver;
use super::contexts::within;
use super::functions::{checked, event_record, event_record_ptsz, stream_wait_event, stream_wait_event_ptsz};
use super::staging::{copy, follow, is_over, record};
use crate::api::abi::Code;
use crate::policy::readback::{Difference, Reader, Reading};

impl Reader for RealDriver {
    fn read_back(&self, reading: &Reading) -> Result<(), Code> {
        let &Reading { ring, stream, per_thread, .. } = reading;
        let ([(of, _), (src, _), (dst, _)], [from, to]) = (ring.contexts, ring.streams);
        let [filled, ..] = ring.filled;
        // SAFETY: the event is ours, the stream what the program has given, or a default stream of this context.
        let begins = || unsafe {
            if per_thread { event_record_ptsz(ring.begins, stream) } else { event_record(ring.begins, stream) }
        };
        within(of, || checked(begins()))?;
        let read = within(src, || {
            follow(from, ring.begins)?;
            // What was staged with the ring before.
            follow(from, ring.ends)?;
            reading.placed().try_for_each(|(window, at)| {
                copy((ring.host.address + at) as u64, reading.src + window.offset, window.bytes, from)
            })?;
            record(filled, from)
        });
        let read = read.and_then(|()| {
            within(dst, || {
                follow(to, filled)?;
                reading.placed().try_for_each(|(window, at)| {
                    copy(
                        (ring.host.address + reading.side() + at) as u64,
                        reading.dst + window.offset,
                        window.bytes,
                        to,
                    )
                })
            })
        });
        // Whatever became of it, the program's next work comes after what was submitted.
        let ended = within(dst, || record(ring.ends, to));
        // SAFETY: as above.
        let follows = || unsafe {
            if per_thread {
                stream_wait_event_ptsz(stream, ring.ends, 0)
            } else {
                stream_wait_event(stream, ring.ends, 0)
            }
        };
        let followed = within(of, || checked(follows()));
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
