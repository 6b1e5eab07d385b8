# Simulated GPUs: `make sim` fills target/sim/lib/.
