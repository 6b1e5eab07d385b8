//! The p2pshim command.
fn main() {}
