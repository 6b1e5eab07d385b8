# p2pshim: `make demo` and `make test` do everything; see README.md.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := build

include sim/sim.mk
include c-tests/c-tests.mk
-include benches/bench.mk
