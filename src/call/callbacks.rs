//! What the program's own listeners hear of calls (`p2pshim_listener_add`).
//!
//! A listener may call anything, the functions that it hears of included. So it is called when the outermost call has
//! returned, with no lock of ours or of the runtime's held, and outside the panic fence; and of what it calls itself
//! nobody is told.

use std::mem::take;
use std::ptr::null_mut;
use std::time::Duration;

use super::fence::fenced;
use super::guard::Call;
use super::read::{self, Subject};
use super::thread::{self, Thread};
use crate::api::Layer;
use crate::api::abi::{Code, Value};
use crate::capi::event::{self, Heard};
use crate::os;
use crate::model::Path;
use crate::policy::validate::{Kind, Rule};

impl Thread {
    /// Whether a call that entered with this stack pointer was made by who is being told of another. Who has left its
    /// listener otherwise than by returning is being told no more: its frame is gone. That shows in a call from above it; in
    /// one from below by what lies now where the frame had to return to.
    fn is_telling(&mut self, stack: usize) -> bool {
        if self.telling != 0 && (stack >= self.telling || !self.is_frame_there()) {
            self.telling = 0;
        }
        self.telling != 0
    }

    /// Whether the call of which somebody is being told may still have its frame. The stack may be another by now, and that
    /// one gone.
    fn is_frame_there(&self) -> bool {
        // SAFETY: any bytes are a valid number.
        match os::keep_errno(|| unsafe { os::read(self.telling as *const usize) }) {
            Ok(address) => address == self.telling_for,
            Err(error) => error.raw_os_error() != Some(libc::EFAULT),
        }
    }
}

impl Call {
    /// Forgets what was kept of a call that has not returned.
    #[inline(always)]
    pub(super) fn forget_heard(self) {
        // SAFETY: the block is this thread's own; the reference ends with the statement.
        let heard = take_heard(unsafe { &mut *thread::current() });
        if !heard.is_null() {
            drop_heard(heard);
        }
    }

    /// Keeps what there is to hear of a call that has returned: its answer, for a copy the devices, and its way.
    pub(super) fn hear(
        self,
        depth: usize,
        values: &[Value],
        (ret, pair, path): (Code, Option<(i32, i32)>, Option<Path>),
        took: Duration,
    ) {
        // SAFETY: the block is this thread's own; no other reference to it lives.
        let thread = unsafe { &mut *thread::current() };
        if thread.is_telling(self.stack()) {
            return;
        }
        let Subject { ends: [src, dst], bytes, stream, devices: [from, to] } = read::subject(values);
        let function = self.function();
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if thread.heard.is_null() {
            thread.heard = Box::into_raw(Box::default());
        }
        // SAFETY: made above by this thread, which alone uses it.
        let heard = unsafe { &mut *thread.heard };
        // Where a copy of the runtime goes is known from the driver's inside it.
        let inner = heard.last().filter(|inner| {
            let is_copy = Kind::of(function).copies() && Kind::of(inner.function).copies();
            is_copy && function.layer() == Layer::Runtime && inner.function.layer() == Layer::Driver
        });
        let devices = match (pair, inner) {
            (Some((src, dst)), _) => [src, dst],
            (None, Some(inner)) => inner.devices,
            (None, None) => [from, to].map(|device| device.map_or(-1, i32::from)),
        };
        let (ends, bytes) = match inner {
            Some(inner) if bytes == 0 => (inner.ends, inner.bytes),
            _ => ([src, dst], bytes),
        };
        heard.push(Heard {
            function,
            depth,
            thread: os::thread_id(),
            start: os::monotonic_nanos().saturating_sub(took),
            took,
            ret,
            devices,
            ends,
            bytes,
            stream,
            path,
        });
    }

    /// Notes, for who listens, that a rule has spoken of the call.
    pub(super) fn note_said(self, rule: Rule) {
        if !event::are_heard() {
            return;
        }
        // SAFETY: the block is this thread's own; no other reference to it lives.
        let thread = unsafe { &mut *thread::current() };
        // Of what a listener calls nobody is told.
        if thread.is_telling(self.stack()) {
            return;
        }
        let number = (rule as u8).saturating_add(1);
        if !thread.said.contains(&number)
            && let Some(free) = thread.said.iter_mut().find(|said| **said == 0)
        {
            *free = number;
        }
    }

    /// Tells all who listen of an outermost call, and of those inside it, in the order of their ends. There is nothing in
    /// this frame to drop, since a listener may not return.
    pub(super) fn tell(self) {
        let thread = thread::current();
        let (heard, said) = {
            // SAFETY: the block is this thread's own; the reference ends with this block.
            let thread = unsafe { &mut *thread };
            if thread.is_telling(self.stack()) {
                return;
            }
            (take_heard(thread), take(&mut thread.said))
        };
        if heard.is_null() {
            return;
        }
        // SAFETY: taken from this thread's block, so that nobody else knows it.
        let all: &[Heard] = unsafe { &*heard };
        let left = {
            // SAFETY: the block is this thread's own; the reference ends with this block.
            let thread = unsafe { &mut *thread };
            (thread.telling, thread.telling_for) = (self.stack(), self.return_address() as usize);
            std::mem::replace(&mut thread.told, heard)
        };
        // What somebody was being told who has not returned.
        if !left.is_null() {
            drop_heard(left);
        }
        for (position, one) in all.iter().enumerate() {
            let is_outermost = position + 1 == all.len();
            event::tell(one, if is_outermost { said } else { Default::default() });
        }
        // SAFETY: as above.
        unsafe { ((*thread).telling, (*thread).told) = (0, null_mut()) };
        drop_heard(heard);
    }
}

fn take_heard(thread: &mut Thread) -> *mut Vec<Heard> {
    std::mem::replace(&mut thread.heard, null_mut())
}

#[cold]
fn drop_heard(heard: *mut Vec<Heard>) {
    // SAFETY: made by `hear`, and taken from where it was kept.
    fenced(|| drop(unsafe { Box::from_raw(heard) }));
}
