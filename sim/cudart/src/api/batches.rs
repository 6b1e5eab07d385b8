//! Batches of copies. 12.8 has one argument that 13.0 has no more: where to store which copy is to blame.
//!
//! Both have the same names here. The argument lies before the last ones, so these have other places in 12 and 13, and the
//! last one of 12 is not looked at in 13: what is there, the caller did not pass. 11 exports none of this (`link.mk`).

use crate::abi::Opaque;
use crate::entry::api;
use crate::flavour;
use crate::thread;

fn pointer(argument: u64) -> Opaque {
    Opaque(argument as *mut _)
}

api! {
    /// In 12, `eighth` is the index and `ninth` the stream; in 13, `eighth` is the stream.
    fn cudaMemcpyBatchAsync | cudaMemcpyBatchAsync_ptsz [driver, default] (
        dsts: Opaque,
        srcs: Opaque,
        sizes: Opaque,
        count: u64,
        attributes: Opaque,
        firsts: Opaque,
        attribute_count: u64,
        eighth: u64,
        ninth: u64,
    ) {
        thread::bind(driver)?;
        if flavour::major() < 13 {
            let fail_index = pointer(eighth);
            return driver.cuMemcpyBatchAsync(
                default, dsts, srcs, sizes, count, attributes, firsts, attribute_count, fail_index, ninth,
            );
        }
        driver.cuMemcpyBatchAsync_v2(default, dsts, srcs, sizes, count, attributes, firsts, attribute_count, eighth)
    }

    /// In 12: the index, flags, the stream; in 13: flags, the stream.
    fn cudaMemcpy3DBatchAsync | cudaMemcpy3DBatchAsync_ptsz [driver, default] (
        count: u64,
        operations: Opaque,
        third: u64,
        fourth: u64,
        fifth: u64,
    ) {
        thread::bind(driver)?;
        if flavour::major() < 13 {
            return driver.cuMemcpy3DBatchAsync(default, count, operations, pointer(third), fourth, fifth);
        }
        driver.cuMemcpy3DBatchAsync_v2(default, count, operations, third, fourth)
    }
}
