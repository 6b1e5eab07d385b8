//! aarch64.

/// An exported function: tools that patch code can move the first 20 bytes.
macro_rules! export {
    () => {
        ".rept 5\nnop\n.endr\nb {body}"
    };
}
pub(crate) use export;
