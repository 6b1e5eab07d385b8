//! How much stack the calling thread has left.

use std::mem::MaybeUninit;
use std::ptr;

use super::{keep_errno, process_id, thread_id};

/// Stack for our work that is done once: a verification, page-locked memory for staging, a message. Measured: 8 KiB.
pub(crate) const ROOM: usize = 64 << 10;
const PAGE: usize = 4096;

/// Whether the calling thread has room on its stack for work that is done once, and can be done by another thread, or later. A thread's own
/// stack may be as small as 16 KiB, and that of its signal handlers 8 KiB.
pub(crate) fn has_room() -> bool {
    let here = ptr::from_ref(&MaybeUninit::<u8>::uninit()).addr();
    keep_errno(|| has_room_below(here))
}

fn has_room_below(here: usize) -> bool {
    let (start, size) = match signal_stack() {
        Some(stack) => stack,
        None if thread_id() == process_id() => return has_main_thread_room(here),
        None => own_stack().unwrap_or((0, 0)),
    };
    match here.checked_sub(start) {
        Some(left) if left <= size => left >= ROOM,
        // A stack that the program has made itself.
        _ => is_readable_below(here),
    }
}

/// Where the stack of signal handlers begins, and its size, if the thread is on it.
fn signal_stack() -> Option<(usize, usize)> {
    let mut stack = MaybeUninit::<libc::stack_t>::uninit();
    // SAFETY: asks, and changes nothing; written if it succeeds.
    let stack = unsafe {
        match libc::sigaltstack(ptr::null(), stack.as_mut_ptr()) {
            0 => stack.assume_init(),
            _ => return None,
        }
    };
    (stack.ss_flags & libc::SS_ONSTACK != 0).then_some((stack.ss_sp.addr(), stack.ss_size))
}

/// Where the stack begins that the calling thread was made with, and its size. Not for the main thread, for which the C library reads a file.
fn own_stack() -> Option<(usize, usize)> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut start, mut size) = (ptr::null_mut(), 0);
    // SAFETY: the attributes are read once they are written, and destroyed; the other places are written.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let code = libc::pthread_attr_getstack(attributes.as_ptr(), &mut start, &mut size);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        (code == 0).then_some((start.addr(), size))
    }
}

/// The main thread's stack grows, to its limit. It begins near the random bytes that the kernel has put above it.
fn has_main_thread_room(here: usize) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getauxval reads a vector that the kernel wrote; the other call writes one limit to the place.
    let (top, code) =
        unsafe { (libc::getauxval(libc::AT_RANDOM) as usize, libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit)) };
    let limit = usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX);
    match top.checked_sub(here) {
        Some(used) if code == 0 && used <= limit => limit - used >= ROOM,
        _ => is_readable_below(here),
    }
}

/// Whether there is memory, and no guard page, as far below as there has to be. True if the system does not let us ask.
fn is_readable_below(here: usize) -> bool {
    const PAGES: usize = ROOM / PAGE;
    let mut bytes = [0u8; PAGES];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: PAGES };
    let page = |number: usize| libc::iovec { iov_base: here.saturating_sub((number + 1) * PAGE) as *mut _, iov_len: 1 };
    let remote: [libc::iovec; PAGES] = std::array::from_fn(page);
    // SAFETY: the kernel writes to `bytes` only, and stops where there is no memory.
    let done = unsafe { libc::process_vm_readv(thread_id(), &local, 1, remote.as_ptr(), PAGES as _, 0) };
    done == PAGES as isize || done == -1 && std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn on_thread(bytes: usize) -> bool {
        thread::Builder::new().stack_size(bytes).spawn(has_room).unwrap().join().unwrap()
    }

    #[test]
    fn has_room_by_the_size_of_a_threads_stack() {
        // Some machines have no stacks as small as some of these.
        let sizes = [16 << 10, 48 << 10, 256 << 10, 2 << 20];
        assert_eq!(sizes.map(on_thread), sizes.map(|bytes| bytes.max(libc::PTHREAD_STACK_MIN) >= 2 * ROOM));
    }

    #[test]
    fn has_room_below_a_stack_of_the_programs_is_as_much_as_can_be_read() {
        let own = vec![0u8; 2 * ROOM];
        let top = own.as_ptr_range().end.addr();
        assert!(is_readable_below(top));
        assert!(!is_readable_below(PAGE));
    }
}
