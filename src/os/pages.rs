//! Pages that forked children do not get. A GPU continues to use the physical page that was registered with it. Where a child shares that until
//! either writes, which is so for registered memory before Linux 5.10, the parent's next write goes to another page than the GPU reads.
//! Later kernels copy such pages at each fork, which takes its time.

use std::ptr;

use super::keep_errno;
use crate::machine::PAGE;

/// The smallest page that a kernel has.
const LEAST: usize = 4096;

/// Takes so many bytes of zeros at a multiple of `alignment`, a power of two, which children do not have. They are never given back.
pub(crate) fn take_uninherited(bytes: usize, alignment: usize) -> Option<usize> {
    let bytes = bytes.checked_next_multiple_of(PAGE)?;
    let alignment = alignment.max(PAGE);
    let slack = alignment - LEAST;
    let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    keep_errno(|| {
        let all = bytes.checked_add(slack)?;
        // SAFETY: takes memory that nobody has.
        let start = unsafe { libc::mmap(ptr::null_mut(), all, rights, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let (start, first) = (start.addr(), start.addr().next_multiple_of(alignment));
        let unused = [(start, first - start), (first + bytes, start + all - (first + bytes))];
        for (from, length) in unused.into_iter().filter(|&(_, length)| length != 0) {
            // SAFETY: that part was taken just now, and nobody knows of it.
            unsafe { libc::munmap(ptr::with_exposed_provenance_mut(from), length) };
        }
        keep_from_children(first, bytes);
        Some(first)
    })
}

/// Has children not get memory that is ours: whole pages of it.
pub(crate) fn keep_from_children(start: usize, bytes: usize) {
    advise(start, bytes, libc::MADV_DONTFORK);
}

/// Has children get zeros in place of memory that is ours, but no hole: for parts of the library's data, which garbage collectors look
/// through.
pub(crate) fn wipe_in_children(start: usize, bytes: usize) {
    advise(start, bytes, libc::MADV_WIPEONFORK);
}

fn advise(start: usize, bytes: usize, advice: i32) {
    if start.is_multiple_of(LEAST) {
        // SAFETY: changes what a child gets, which touches nothing of ours. A kernel that cannot do it leaves all as it is.
        keep_errno(|| unsafe { libc::madvise(ptr::with_exposed_provenance_mut(start), bytes, advice) });
    }
}

/// The kernel's flags of the page at an address.
#[cfg(test)]
pub(crate) fn flags_of(address: usize) -> String {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_here = false;
    for line in maps.lines() {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let range = range.map(|(from, to)| [from, to].map(|end| usize::from_str_radix(end, 16)));
        if let Some([Ok(from), Ok(to)]) = range {
            is_here = (from..to).contains(&address);
        } else if is_here && let Some(flags) = line.strip_prefix("VmFlags:") {
            return flags.to_owned();
        }
    }
    panic!("{address:#x} is not mapped")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_zero_and_not_for_children() {
        for (bytes, alignment) in [(1, 1), (4096, 4096), (5 << 20, 2 << 20)] {
            let start = take_uninherited(bytes, alignment).unwrap();
            assert!(start.is_multiple_of(alignment.max(PAGE)));
            // SAFETY: it is ours.
            let memory =
                unsafe { std::slice::from_raw_parts_mut(ptr::with_exposed_provenance_mut::<u8>(start), bytes) };
            assert!(memory.iter().all(|&byte| byte == 0));
            memory.fill(1);
            assert!(flags_of(start).contains(" dc"), "{}", flags_of(start));
        }
        assert_eq!(take_uninherited(usize::MAX, 4096), None);
    }
}
