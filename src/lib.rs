//! p2pshim.
