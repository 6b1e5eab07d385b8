//! The limit of peers that a context can have.
//!
//! For copies nothing is closed: beyond the limit a pair stays staged. But the program's own enabling must not fail for want
//! of a place that we have taken. A direct copy that is queued or under way when its link is closed ends with a fault of its
//! whole context, whichever that is, and so does a graph that was instantiated with one. So a link is given up only while
//! nobody stands in the gate, no graph is ready to run, and none of the contexts has anything to do, whether it is one of the
//! link's or not.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use super::Access;
use super::cells::Cell;
use super::decide::Acting;
use super::registry::{Link, Ours, Owner, Registry};
use crate::api::abi::Code;
use crate::policy::{Driver, Mark, capture};
use crate::record::log;

/// How long the program's enabling waits for a link that can be given up.
const LONG: Duration = Duration::from_millis(100);
/// How old the news may be that nothing is to be done. What copies by other functions than those that pass the gate, and
/// begins in that time, is not seen.
const RECENT: Duration = Duration::from_millis(2);
/// How often is looked whether something is over.
const INTERVAL: Duration = Duration::from_micros(20);

/// A link that can be given up.
struct Victim {
    link: Link,
    /// Its contexts: the one that reaches, the one that is reached.
    contexts: [usize; 2],
    devices: [u8; 2],
}

impl Access {
    /// Whether links can be given up at all.
    pub(super) fn can_give_up(driver: &impl Driver) -> bool {
        driver.has_marks() && super::gate::Gate::can_be_shut()
    }

    /// Gives up the link from a context that was not used for the longest time, of those that only we want, since the
    /// program wants another. Answers whether it was.
    pub(super) fn give_up_one(&self, driver: &impl Driver, from: u8) -> bool {
        let candidate = self.victim(&self.lock(), from);
        let Some(Victim { devices: [one, other], .. }) = candidate else { return false };
        match self.close_one(driver, from, Instant::now() + LONG) {
            Ok(Victim { devices: [one, other], .. }) => {
                log::pair_info(
                    one,
                    other,
                    format_args!(
                        "access of device {one} given up for another peer: a context can have no more of them"
                    ),
                );
                true
            }
            Err(why) => {
                log::pair_info(one, other, format_args!("not given up for another peer: {why}"));
                false
            }
        }
    }

    fn close_one(&self, driver: &impl Driver, from: u8, deadline: Instant) -> Result<Victim, &'static str> {
        // Proofs copy too, and their copies do not pass the gate.
        let _acting = self.begin_acting(deadline).ok_or("a pair is being verified")?;
        let shut = self.gate.shut(deadline).ok_or("calls are under way")?;
        self.wait_until_idle(driver, deadline)?;
        if !shut.begin_closing() {
            return Err("copies have waited too long");
        }
        // The program may have been faster.
        let victim = self.begin_closing(from).ok_or("the program wants it")?;
        let [context, peer] = victim.contexts;
        let is_closed = driver.disable(context, peer) == Code::SUCCESS;
        let mut registry = self.lock();
        registry.link_mut(victim.link.from, victim.link.to).ours = if is_closed { Ours::No } else { Ours::Held };
        if !is_closed {
            return Err("the driver refuses");
        }
        registry.keep_place(from);
        drop(registry);
        self.start_anew(victim.link);
        Ok(victim)
    }

    /// Waits until no other thread proves or enables anything, and keeps them from it.
    fn begin_acting(&self, deadline: Instant) -> Option<Acting<'_>> {
        while std::mem::replace(&mut self.lock().is_acting, true) {
            if Instant::now() > deadline {
                return None;
            }
            thread::sleep(INTERVAL);
        }
        Some(Acting(self))
    }

    /// Picks the link, and says that it is being closed.
    fn begin_closing(&self, from: u8) -> Option<Victim> {
        let mut registry = self.lock();
        let victim = self.victim(&registry, from)?;
        registry.link_mut(victim.link.from, victim.link.to).ours = Ours::Closing;
        Some(victim)
    }

    /// Makes a pair earn its place anew.
    fn start_anew(&self, link: Link) {
        for (src, dst) in [(link.from, link.to), (link.to, link.from)] {
            self.cells.get(src, dst).into_iter().for_each(Cell::forget);
        }
        self.lock().attempts_of(link.from, link.to).limited();
        self.cells.unsettle();
    }

    /// Waits until no context has anything to do. The gate is shut.
    fn wait_until_idle(&self, driver: &impl Driver, deadline: Instant) -> Result<(), &'static str> {
        if self.graphs.load(Relaxed) != 0 {
            return Err("graphs may use it");
        }
        // Marking would end a capture. None can begin.
        if capture::may_be_under_way() {
            return Err("a capture is under way");
        }
        let contexts = self.contexts(driver);
        loop {
            let began = Instant::now();
            let marks: Vec<Option<Mark>> = contexts.iter().map(|&context| driver.mark(context)).collect();
            let is_passed = |mark: &Option<Mark>| mark.as_ref().is_some_and(|mark| driver.is_passed(mark));
            let is_late = || Instant::now() > deadline;
            let can_pass = marks.iter().all(Option::is_some);
            while can_pass && !marks.iter().all(is_passed) && !is_late() {
                thread::sleep(INTERVAL);
            }
            let is_idle = marks.iter().all(is_passed);
            marks.into_iter().flatten().for_each(|mark| driver.drop_mark(mark));
            match is_idle {
                true if began.elapsed() < RECENT => return Ok(()),
                _ if !can_pass => return Err("a context does not say whether it is idle"),
                _ if is_late() => return Err("copies may be under way"),
                _ => {}
            }
        }
    }

    /// All contexts that may have something to do.
    fn contexts(&self, driver: &impl Driver) -> BTreeSet<usize> {
        let seen = self.lock().contexts();
        let living = seen.into_iter().filter(|&(handle, id)| driver.context_id(handle) == Some(id));
        // A runtime may make those past us.
        living.map(|(handle, _)| handle).chain(driver.primary_contexts()).collect()
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
