# aarch64: cross-built by the tools of `make dist`, and run beside the programs of this machine under QEMU's user mode, which c-tests/arm.txt names.
.PHONY: arm arm-few test-arm test-arm-few test-arm-dist arm-tools
ARM := target/arm
ARM_TARGET := aarch64-unknown-linux-gnu
ARM_BUILD := target/$(ARM_TARGET)/tests
ARM_SIM := $(ARM)/sim/lib
ARM_FEW := $(ARM)/few
ARM_ZIG = $(ZIG_ENV) $(TOOLS)/bin/cargo-zigbuild
QEMU := $(CURDIR)/$(ARM)/lib/qemu-aarch64 -L $(CURDIR)/$(ARM)

# The programs of tests/arm.txt for a machine ($1), with simulated GPUs there ($2), to a folder ($3); of these the few ($4). Both machines' are built by one compiler: calls stand
# in other places, and arguments are evaluated in another order, where two build them. gcc has warned of what there is to warn of.
programs_for = $(ZIG_ENV) $(MAKE) --no-print-directory $(PARALLEL) -o sim -o shim SIM_LIB=$2 C_TESTS=$3 C_TESTS_FLAGS="-w -O1 -g -Ic-tests -I$3" \
	CUDART11=$2/libcudart.so.11.0 CUDART12=$2/libcudart.so.12 CUDART13=$2/libcudart.so.13 \
	CC="$(ZIG) cc -target $1-linux-gnu.2.36 -fno-sanitize=undefined" $(addprefix $3/,$(shell tests/arm.py --programs $4))

ARM_UNIT_TESTS = CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$(QEMU) -E LD_PRELOAD=$(CURDIR)/$(ARM)/c-tests/libreads_by_pipe.so" $(ARM_ZIG) test --profile tests --target $(ARM_TARGET).$(GLIBC)
# QEMU's user mode takes no notice of what madvise says about forks. It has no process_vm_readv: c-tests/lib/reads_by_pipe.c stands in for that.
NOT_EMULATED := memory_is_aligned_zero_and_not_for_children reserve_is_taken_once has_room_below_a_stack
# The linker of packages writes no build id; this test loads the simulated driver of the machine that builds.
NOT_EMULATED += build_id_of_damaged_files context_and_capture_mode_come_back

arm-tools: dist-tools
	test -d "$$(rustc --print sysroot)/lib/rustlib/$(ARM_TARGET)/lib" || rustup target add $(ARM_TARGET) || \
		{ echo "arm-tools: this Rust cannot build for $(ARM_TARGET), and rustup could not add that (its message is above): install rustup" \
		"(https://rustup.rs), or connect this machine to static.rust-lang.org or a mirror of it (RUSTUP_DIST_SERVER)" >&2; exit 1; }
	c-tests/fetch-debian arm

# Simulated GPUs, from the archives of a build ($1), to a folder ($2): all, or these ($3).
arm_sim = $(ZIG_ENV) $(MAKE) -s --no-print-directory $(PARALLEL) -f sim/link.mk LIB=$2 ARCHIVES=$1 UNWIND=-lunwind CC="$(ZIG) cc -target aarch64-linux-gnu.$(GLIBC)" $(or $3,shared)

# The library, simulated GPUs and the programs of tests/arm.txt.
arm: arm-tools $(NVIDIA)/stamp
	$(ARM_ZIG) zigbuild --profile tests --target $(ARM_TARGET).$(GLIBC) -p p2pshim -p p2psim-cuda -p p2psim-cudart -p p2psim-hip
	+$(call arm_sim,$(ARM_BUILD),$(ARM_SIM))
	+$(call programs_for,aarch64,$(ARM_SIM),$(ARM)/c-tests)

# The programs on both machines; then unit tests under emulation.
test-arm: arm shim sim
	+$(call programs_for,x86_64,$(SIM_LIB),$(ARM)/x86_64)
	tests/arm.py
	$(ARM_UNIT_TESTS) -p p2pshim-trace --tests
	$(ARM_UNIT_TESTS) -p p2pshim -p p2pshim-host --lib -- $(addprefix --skip ,$(NOT_EMULATED))

# In a minute, most of which is the build: the programs that tests/arm.txt begins with, beside those of `make c-tests`. The library and the simulated GPUs
# that these need are not optimized, which takes a third of the time.
test-arm-few: arm-few shim sim c-tests
	tests/arm.py --few

arm-few: arm-tools $(NVIDIA)/stamp
	CARGO_PROFILE_DEV_DEBUG=0 $(ARM_ZIG) zigbuild --target $(ARM_TARGET).$(GLIBC) -p p2pshim -p p2psim-cuda -p p2psim-cudart -p p2psim-hip
	+$(call arm_sim,target/$(ARM_TARGET)/debug,$(ARM_FEW)/sim/lib,$(addprefix $(ARM_FEW)/sim/lib/,libcuda.so.1 libcudart.so.12 libamdhip64.so.6))
	+$(call programs_for,aarch64,$(ARM_FEW)/sim/lib,$(ARM_FEW)/c-tests,--few)

# The packages, with the tests that `make test-dist` has for them: they are installed, and used by programs, Python and the command, all under emulation. Emulated
# programs take $(ARM_ROOT) for the root of the system. STAND_INS lets them start others, and read stacks.
ARM_ROOT := $(ARM)/dist/root
ARM_PYTHON := target/arm-python
STAND_INS := $(addprefix $(ARM)/dist/lib,starts_programs.so reads_by_pipe.so)
# Instructions are counted on x86-64; one test is about tests.
ARM_DIST_TESTS := binary(dist) - test(/^(calls_take_no_more|too_new_libraries)/)
$(ARM)/dist/lib%.so: c-tests/lib/%.c
	mkdir -p $(ARM_ROOT)/lib
	$(ZIG_ENV) $(ZIG) cc -target aarch64-linux-gnu.2.36 -shared -fPIC -D_GNU_SOURCE -Wall -Wextra -Werror -O1 $< -o $@

test-arm-dist: $(NVIDIA)/stamp tools
	$(MAKE) --no-print-directory dist DIST_MACHINE=aarch64
	c-tests/fetch-debian arm-python
	$(MAKE) --no-print-directory $(STAND_INS)
	ln -sf $(CURDIR)/$(ARM)/lib/*.so* $(CURDIR)/$(ARM_PYTHON)/lib/* $(ARM_ROOT)/lib/
	$(ZIG_ENV) DIST_MACHINE=aarch64 tests/run --profile dist -E '$(ARM_DIST_TESTS)'
