//! `make soak` does all of what `make test` does a part of, with seeds that nobody has tried: `P2PSHIM_SOAK` is what they begin
//! with, and the same value takes the same seeds again.

/// The number that is added to each seed, if this is `make soak`.
pub(crate) fn soak() -> Option<u32> {
    let value = std::env::var("P2PSHIM_SOAK").ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("P2PSHIM_SOAK={value} is no number")))
}

/// The first seed of a random test, and how many of `count` it takes: a tenth, or, in `make soak`, all.
pub(crate) fn seeds(first: u32, count: u32) -> (u32, u32) {
    soak().map_or((first, count.div_ceil(10)), |more| (first.checked_add(more).unwrap(), count))
}
