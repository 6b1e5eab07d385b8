//! Reports of traces.

pub(crate) mod html;
