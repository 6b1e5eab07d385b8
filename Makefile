# p2pshim: `make demo` and `make test` do everything; see README.md.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := build
# `make help` lists the targets; `make V=1` shows the commands.
$(V).SILENT:
.PHONY: build help shim tools programs test-programs model-programs demo figures test quick golden soak gauntlet gauntlet-faults neighbours fuzz models miri races privilege systems test-gpu bench lint check header sim c-tests gpu-bundle clean

CARGO ?= cargo
# The profile `release` builds the library and command that users get. For tests it is built in less time, and with SHIM_PROFILE=dist what is packaged
# is tested. All find it in target/built.
FOR_USERS := build demo install uninstall bench bench-instructions bench-many gpu-bundle test-gpu
SHIM_PROFILE ?= $(if $(filter-out $(FOR_USERS),$(MAKECMDGOALS)),tests,release)
export SHIM_PROFILE
IS_DIST := $(filter dist,$(SHIM_PROFILE))
IS_RELEASE := $(filter release,$(SHIM_PROFILE))
SHIM := target/built/libp2pshim.so
# The command is built without LTO, which takes five minutes of one core and saves a seventh of its size.
NO_LTO := CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16

build: shim sim

# The table is CONTRIBUTING.md's.
help:
	sed -n 's/^| \(`make .*`\) | \(.*\) |$$/\1:\n    \2/p' CONTRIBUTING.md | sed 's/\[\([^]]*\)\]([^)]*)/\1/g' | tr -d '`'

# The library and the command. Cargo knows whether there is anything to do.
shim: $(if $(IS_DIST),dist-build)
	$(if $(IS_DIST),,$(CARGO) build --profile $(SHIM_PROFILE) -p p2pshim $(if $(IS_RELEASE),,-p p2pshim-cli))
	$(if $(IS_RELEASE),$(NO_LTO) $(CARGO) build --profile $(SHIM_PROFILE) -p p2pshim-cli)
	ln -sfn $(if $(IS_DIST),$(DIST_TARGET)/release,$(SHIM_PROFILE)) target/built
	ln -sfn libp2pshim.so target/built/libp2pshim.so.0
	# The command looks for simulated GPUs beside its folder.
	$(if $(IS_DIST),ln -sfn ../sim target/$(DIST_TARGET)/sim)

$(SHIM): shim

include sim/sim.mk
include c-tests/c-tests.mk
include packaging/packaging.mk
include c-tests/arm.mk
include benches/bench.mk

# On two real GPUs if there are, else on simulated ones.
demo:
	echo 'Building: minutes, the first time.'
	CARGO_TERM_QUIET=true $(MAKE) --silent --no-print-directory shim sim c-tests
	c-tests/demo

# Whatever tests/run needs.
programs: shim sim c-tests bench-programs tools
tools:
	cargo nextest --version >/dev/null 2>&1 || packaging/get-tools nextest

# With the packages' tests where `make dist` makes these.
TESTS_RUN := $(if $(IS_DIST),WITH_PACKAGES=1) tests/run

# The tests themselves, which tests/run builds otherwise.
test-programs: tools model-programs
	$(TESTS_RUN) --no-run

# A test runs some of them, and a test that builds may take longer than a test may on a busy machine.
model-programs:
	CARGO=$(CARGO) tests/models.py --build

test: programs model-programs $(if $(IS_DIST),dist valgrind)
	$(TESTS_RUN)

# After a change of the library: unit tests, and tests of programs that take little time.
quick: programs
	tests/run --profile quick

# Writes anew what tests compare with: read what has changed.
golden: programs
	P2PSHIM_UPDATE=1 tests/run --profile golden

# All of what `make test` does a part of, with other seeds each time. The exports are checked in a debug build too: symbol
# versions have got lost there.
soak: SEED := $(or $(P2PSHIM_SOAK),$(shell od -An -N3 -tu4 /dev/urandom))
soak: programs model-programs
	$(CARGO) build -p p2pshim
	echo '`make soak P2PSHIM_SOAK=$(strip $(SEED))` repeats this.'
	P2PSHIM_SOAK=$(strip $(SEED)) tests/run --profile soak

# Rounds from a seed on, for MINUTES; without them one, the seed's.
gauntlet: shim sim c-tests
	nice c-tests/gpu/gauntlet.py --jobs $(shell nproc) $(and $(MINUTES),--minutes $(MINUTES)) $(and $(SEED),--seed $(SEED)) $(and $(BRIEF),--brief)

# Faults that the library once had, put back one by one: does the gauntlet find each, and how soon?
gauntlet-faults: shim sim c-tests
	nice tests/gauntlet_faults.py --jobs $(shell nproc) $(and $(MINUTES),--minutes $(MINUTES)) $(and $(SEED),--seed $(SEED)) $(FAULT)

# Programs beside others who want to be in the process, by packages of Debian and PyPI, and programs of other languages; ONLY='word word' chooses some.
neighbours: shim sim c-tests
	nice tests/neighbours.py --jobs $(shell nproc) $(ONLY)

# Every order in which threads can use what they share without a lock, and every moment for a signal. Needs loom, of crates.io.
models:
	CARGO=$(CARGO) nice tests/models.py $(if $(FAULT),"$(FAULT)")

# Unit tests of modules without assembler, foreign functions and mappings, with weak memory and SEEDS seeds. Needs a nightly toolchain with Miri.
miri:
	nice tests/miri.py $(and $(SEEDS),--seeds $(SEEDS))
	nice tests/miri.py --fault

# ThreadSanitizer over 64 threads. Needs a nightly toolchain with its sources.
races: sim c-tests
	nice tests/races.py

# Programs in namespaces, under a limit of memory, and where nothing can be written; as root all of it can be run.
privilege: shim sim c-tests
	tests/systems/privilege.py

# The packages in roots of the oldest and newest Debian. Needs root and a mirror.
systems: dist c-tests
	tests/systems/systems.py $(SUITES)

# So many damaged inputs of each kind that is read. Readers that take more than 4 GiB of addresses fail.
fuzz: FUZZ = $(CARGO) test --profile tests -q -p p2pshim-host -p p2pshim-trace -p p2pshim-cli
fuzz:
	$(FUZZ) --no-run
	ulimit -v $$((4 << 20)) && P2PSHIM_FUZZ=$(or $(INPUTS),1000000) P2PSHIM_SOAK=$(or $(SEED),1) $(FUZZ) damaged -- --nocapture

# Needs two GPUs; on a machine without Rust, run.sh of the bundle does the same.
test-gpu: gpu-bundle
	target/gpu-bundle/run.sh

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --lib --bins --examples --tests --test dist -- -D warnings
	# The library and the command have one name, and their documents one folder: not at the same time.
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --quiet --no-deps --workspace --exclude p2pshim-cli --document-private-items
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --quiet --no-deps -p p2pshim-cli --document-private-items
	tests/structure_test.py
	tests/structure.py

# Sizes of code and documents, circles of files, and the functions that a copy passes. Fails if a goal is exceeded.
figures: sim $(NVIDIA)/stamp
	command -v gdb >/dev/null || packaging/get-tools gdb
	$(CARGO) build --quiet --profile figures -p p2pshim
	$(MAKE) --no-print-directory $(C_TESTS)/one_copy-12
	status=0; \
	tests/structure.py --figures || status=1; \
	tests/path_of_a_call.py --check || status=1; \
	exit $$status

check: lint test

# Writes anew what CONTRIBUTING.md lists.
header:
	P2PSHIM_UPDATE=1 $(CARGO) test -q --lib model::tables
	$(MAKE) --no-print-directory shim
	P2PSHIM_UPDATE=1 $(CARGO) test -q --test it generated::
	P2PSHIM_UPDATE=1 $(CARGO) test -q -p p2pshim-cli -- json_schema machines_of_each_kind
	P2PSHIM_UPDATE=1 $(CARGO) test -q -p p2pshim-trace --test documented

gpu-bundle: shim
	c-tests/gpu/make-bundle

clean:
	$(CARGO) clean
