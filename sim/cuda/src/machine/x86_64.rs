//! x86-64.

/// An exported function: as with NVIDIA's, tools that patch code can move the first 20 bytes.
macro_rules! export {
    () => {
        ".rept 4\nmov eax, 0\n.endr\njmp {body}"
    };
}
pub(crate) use export;
