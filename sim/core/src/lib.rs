//! Simulated GPUs.
