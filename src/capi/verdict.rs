//! The verdict of `p2pshim doctor` and `p2pshim run` on two GPUs, which is kept until the machine is booted again.

use std::ffi::{c_char, c_uint};
use std::mem::size_of;

use super::status::p2pshim_status_t::{self, P2PSHIM_INVALID_ARGUMENT, P2PSHIM_NOT_FOUND};
use super::{give, given, guarded};
use crate::policy::verdicts;
use p2pshim_host::verdict::{Finding, Part};

const VERDICT_SIZE_0_1: usize = 16;

/// Copies by the copy engines.
pub const P2PSHIM_PART_COPIES: c_uint = 1;
/// Loads of kernels.
pub const P2PSHIM_PART_LOADS: c_uint = 2;
/// Stores of kernels.
pub const P2PSHIM_PART_STORES: c_uint = 4;
/// Atomic operations of kernels.
pub const P2PSHIM_PART_ATOMICS: c_uint = 8;
/// Flags between kernels that run at the same time.
pub const P2PSHIM_PART_FLAGS: c_uint = 16;
/// Memory of another process that was opened by an IPC handle.
pub const P2PSHIM_PART_IPC: c_uint = 32;
/// Memory of another process that was mapped by a file descriptor (Virtual Memory Management).
pub const P2PSHIM_PART_VMM: c_uint = 64;
/// Memory wherever it lies: every program relies on it, as on all other parts whose name begins so.
pub const P2PSHIM_PART_ALL_MEMORY: c_uint = 128;
/// All pairs of GPUs at once.
pub const P2PSHIM_PART_ALL_PAIRS: c_uint = 256;
/// Flags and data that a kernel reads from the memory of the peer.
pub const P2PSHIM_PART_PULL: c_uint = 512;
/// Data with a flag in each 8 bytes, as NCCL's LL protocol has it.
pub const P2PSHIM_PART_LL: c_uint = 1024;
/// Lines of 128 bytes that end with a flag, as NCCL's LL128 protocol has it.
pub const P2PSHIM_PART_LL128: c_uint = 2048;
/// Kernels of two processes in memory of an IPC handle.
pub const P2PSHIM_PART_IPC_KERNELS: c_uint = 4096;
/// Stores of kernels from each GPU to each other one at once.
pub const P2PSHIM_PART_ALL_TO_ALL: c_uint = 8192;
/// Copies, loads and stores in memory of a pool, and in mapped memory, to which access was granted.
pub const P2PSHIM_PART_POOLS: c_uint = 16384;
/// Copies that a graph makes.
pub const P2PSHIM_PART_GRAPHS: c_uint = 32768;
/// All-reduces of all GPUs.
pub const P2PSHIM_PART_ALL_REDUCE: c_uint = 65536;

/// Parts of the verdict on one GPU's access to the memory of another: P2PSHIM_PART_COPIES and the others, added up.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct p2pshim_verdict_t {
    /// Set by the caller: sizeof(p2pshim_verdict_t).
    pub size: usize,
    /// Parts in which every byte was right.
    pub right: c_uint,
    /// Parts in which data was wrong, or that did not end. Those that are neither right nor wrong were not tested.
    pub wrong: c_uint,
}

/// Returns the verdict on one GPU's access to the memory of another. It needs no driver and no context. A program that relies on a part
/// that is wrong should go through the host; nothing says that peer access works otherwise.
///
/// Verdicts of the user and of root are believed, if nobody else can have written them, and if they are of this boot, kernel module, BAR1
/// and IOMMU mode.
///
/// Thread-safety: any thread; not in signal handlers. It reads a small file or two.
///
/// @param from The UUID of the GPU that accesses, such as "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6".
/// @param to The UUID of the GPU whose memory it is.
/// @param verdict Where to write; its size is set.
/// @return P2PSHIM_OK; P2PSHIM_NOT_FOUND if there is no verdict on the pair.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p2pshim_verdict_get(
    from: *const c_char,
    to: *const c_char,
    verdict: *mut p2pshim_verdict_t,
) -> p2pshim_status_t {
    guarded(|| {
        // SAFETY: the caller's promise.
        let uuids = unsafe { [given(from), given(to)] }.map(|text| text.and_then(|text| text.to_str().ok()));
        let [Some(from), Some(to)] = uuids else { return P2PSHIM_INVALID_ARGUMENT };
        let Some(known) = verdicts::of_uuids([from, to]) else { return P2PSHIM_NOT_FOUND };
        let parts = |is_meant: fn(&Finding) -> bool| {
            let is_meant = |(part, _): &(Part, _)| known.finding(*part).is_some_and(is_meant);
            BITS.into_iter().filter(is_meant).map(|(_, bit)| bit).sum()
        };
        let described = p2pshim_verdict_t {
            size: size_of::<p2pshim_verdict_t>(),
            right: parts(|finding| *finding == Finding::Right),
            wrong: parts(Finding::is_failure),
        };
        // SAFETY: the caller's promise.
        unsafe { give(&described, verdict, VERDICT_SIZE_0_1) }
    })
}

const BITS: [(Part, c_uint); Part::ALL.len()] = [
    (Part::Copies, P2PSHIM_PART_COPIES),
    (Part::Loads, P2PSHIM_PART_LOADS),
    (Part::Stores, P2PSHIM_PART_STORES),
    (Part::Atomics, P2PSHIM_PART_ATOMICS),
    (Part::Flags, P2PSHIM_PART_FLAGS),
    (Part::Ipc, P2PSHIM_PART_IPC),
    (Part::Vmm, P2PSHIM_PART_VMM),
    (Part::AllMemory, P2PSHIM_PART_ALL_MEMORY),
    (Part::AllPairs, P2PSHIM_PART_ALL_PAIRS),
    (Part::Pull, P2PSHIM_PART_PULL),
    (Part::Ll, P2PSHIM_PART_LL),
    (Part::Ll128, P2PSHIM_PART_LL128),
    (Part::IpcKernels, P2PSHIM_PART_IPC_KERNELS),
    (Part::AllToAll, P2PSHIM_PART_ALL_TO_ALL),
    (Part::Pools, P2PSHIM_PART_POOLS),
    (Part::Graphs, P2PSHIM_PART_GRAPHS),
    (Part::AllReduce, P2PSHIM_PART_ALL_REDUCE),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_a_bit_of_its_own() {
        assert!(Part::ALL.iter().all(|part| BITS.iter().any(|(known, _)| known == part)));
        assert_eq!(BITS.iter().fold(0, |all, (_, bit)| all | bit), (1 << BITS.len()) - 1);
    }
}
