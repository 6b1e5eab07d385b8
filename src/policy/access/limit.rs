//! The limit of peers that a context can have.
//!
//! Copies that are under way, and graphs that were instantiated with direct copies, end with a fault of the whole context
//! when their link is closed. So nothing is given up while there are graphs, or either context has anything to do. (What a
//! stream of a third context copies between the two is not seen.)

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use super::Access;
use super::cells::Cell;
use super::registry::{Link, Ours, Owner, Registry};
use crate::api::abi::Code;
use crate::policy::{Driver, capture};
use crate::record::log;

/// How long a context is waited for that the program wants another peer for.
const LONG: Duration = Duration::from_millis(100);

/// A link that can be given up.
struct Victim {
    link: Link,
    /// Its contexts: the one that reaches, the one that is reached.
    contexts: [usize; 2],
    devices: [u8; 2],
}

impl Access {
    /// Gives up the link from a context that was not used for the longest time, of those that only we want, since the
    /// program wants another. Answers whether it was. (Copies can do without.)
    pub(super) fn give_up_one(&self, driver: &impl Driver, from: u8) -> bool {
        let deadline = Instant::now() + LONG;
        let victim = self.victim(&self.lock(), from);
        let Some(Victim { link, contexts, devices: [one, other] }) = victim else { return false };
        while !self.is_unused(driver, contexts) {
            if Instant::now() > deadline {
                log::pair_info(one, other, format_args!("not given up for another peer: copies may be under way"));
                return false;
            }
            thread::sleep(Duration::from_micros(50));
        }
        // The program, or another thread here, may have been faster.
        if !self.begin_closing(link) {
            return false;
        }
        let [context, peer] = contexts;
        let is_closed = driver.disable(context, peer) == Code::SUCCESS;
        self.lock().link_mut(link.from, link.to).ours = if is_closed { Ours::No } else { Ours::Held };
        if !is_closed {
            return false;
        }
        self.start_anew(link);
        log::pair_info(
            one,
            other,
            format_args!("access of device {one} given up for another peer: a context can have no more of them"),
        );
        true
    }

    /// Says that a link is being closed, if that is still right.
    fn begin_closing(&self, link: Link) -> bool {
        let mut registry = self.lock();
        let link = registry.link_mut(link.from, link.to);
        let is_right = link.ours == Ours::Held && !link.program;
        if is_right {
            link.ours = Ours::Closing;
        }
        is_right
    }

    /// Makes a pair earn its place anew.
    fn start_anew(&self, link: Link) {
        for (src, dst) in [(link.from, link.to), (link.to, link.from)] {
            self.cells.get(src, dst).into_iter().for_each(Cell::forget);
        }
        self.lock().attempts_of(link.from, link.to).limited();
        self.cells.unsettle();
    }

    /// Whether neither context has anything to do, and there is no graph that might use the link.
    fn is_unused(&self, driver: &impl Driver, contexts: [usize; 2]) -> bool {
        // Marking would end a capture.
        let may_mark = || self.graphs.load(Relaxed) == 0 && !capture::may_be_under_way();
        let marks = contexts.map(|context| if may_mark() { driver.mark(context) } else { None });
        let is_idle = marks.iter().all(|mark| mark.as_ref().is_some_and(|mark| driver.is_passed(mark)));
        marks.into_iter().flatten().for_each(|mark| driver.drop_mark(mark));
        is_idle && self.graphs.load(Relaxed) == 0
    }

    fn victim(&self, registry: &Registry, from: u8) -> Option<Victim> {
        let last_used = |link: &Link| {
            let used = |src, dst| self.cells.get(src, dst).map_or(0, Cell::last_used);
            used(link.from, link.to).max(used(link.to, link.from))
        };
        let given_up = |link: &&Link| link.from == from && link.ours == Ours::Held && !link.program;
        let link = *registry.links().filter(given_up).min_by_key(|link| last_used(link))?;
        let context = |number| match registry.owner(number) {
            Some(Owner::Context { handle, device, .. }) => Some((handle, u8::try_from(device).ok()?)),
            _ => None,
        };
        let ((one, src), (other, dst)) = (context(link.from)?, context(link.to)?);
        Some(Victim { link, contexts: [one, other], devices: [src, dst] })
    }
}
