# aarch64: cross-built by the tools of `make dist`, and run beside the programs of this machine under QEMU's user mode, which c-tests/arm.txt names.
.PHONY: arm test-arm test-arm-few test-arm-dist arm-tools
ARM := target/arm
ARM_TARGET := aarch64-unknown-linux-gnu
ARM_BUILD := target/$(ARM_TARGET)/tests
ARM_SIM := $(ARM)/sim/lib
ARM_ZIG = $(ZIG_ENV) $(TOOLS)/bin/cargo-zigbuild
QEMU := $(CURDIR)/$(ARM)/lib/qemu-aarch64 -L $(CURDIR)/$(ARM)

# The programs of tests/arm.txt for a machine ($1), with simulated GPUs there ($2), to a folder ($3); of these the few ($4). Both machines' are built by one compiler: calls stand
# in other places, and arguments are evaluated in another order, where two build them.
programs_for = $(ZIG_ENV) $(MAKE) --no-print-directory -o sim -o shim SIM_LIB=$2 C_TESTS=$3 C_TESTS_FLAGS="-Wall -O1 -g -Ic-tests -I$3" \
	CUDART11=$2/libcudart.so.11.0 CUDART12=$2/libcudart.so.12 CUDART13=$2/libcudart.so.13 \
	CC="$(ZIG) cc -target $1-linux-gnu.2.36 -fno-sanitize=undefined" $(addprefix $3/,$(shell tests/arm.py --programs $4))

ARM_UNIT_TESTS = CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$(QEMU) -E LD_PRELOAD=$(CURDIR)/$(ARM)/c-tests/libreads_by_pipe.so" $(ARM_ZIG) test --profile tests --target $(ARM_TARGET).$(GLIBC)
# QEMU's user mode takes no notice of what madvise says about forks. It has no process_vm_readv: c-tests/lib/reads_by_pipe.c stands in for that.
NOT_EMULATED := memory_is_aligned_zero_and_not_for_children reserve_is_taken_once has_room_below_a_stack
# The linker of packages writes no build id; this test loads the simulated driver of the machine that builds.
NOT_EMULATED += build_id_of_damaged_files context_and_capture_mode_come_back

arm-tools:
	packaging/get-tools dist
	rustup target list --installed | grep -qx $(ARM_TARGET) || rustup target add $(ARM_TARGET)
	c-tests/fetch-debian arm

# Simulated GPUs, from the archives of a build ($1).
arm_sim = $(ZIG_ENV) $(MAKE) -s --no-print-directory -f sim/link.mk LIB=$(ARM_SIM) ARCHIVES=$1 UNWIND=-lunwind CC="$(ZIG) cc -target aarch64-linux-gnu.$(GLIBC)" shared

# The library, the command, simulated GPUs and the programs of tests/arm.txt.
arm: arm-tools $(NVIDIA)/stamp
	$(ARM_ZIG) zigbuild --profile tests --target $(ARM_TARGET).$(GLIBC) -p p2pshim -p p2pshim-cli -p p2psim-cuda -p p2psim-cudart -p p2psim-hip
	$(call arm_sim,$(ARM_BUILD))
	$(call programs_for,aarch64,$(ARM_SIM),$(ARM)/c-tests)

# The programs on both machines; then unit tests under emulation.
test-arm: arm shim sim
	$(call programs_for,x86_64,$(SIM_LIB),$(ARM)/x86_64)
	tests/arm.py
	$(ARM_UNIT_TESTS) -p p2pshim-trace --tests
	$(ARM_UNIT_TESTS) -p p2pshim -p p2pshim-host --lib -- $(addprefix --skip ,$(NOT_EMULATED))

# Without the command and unit tests, which take most of the time: the programs that tests/arm.txt begins with, beside those of `make c-tests`.
test-arm-few: arm-tools $(NVIDIA)/stamp shim sim c-tests
	$(ARM_ZIG) zigbuild --profile tests --target $(ARM_TARGET).$(GLIBC) -p p2pshim -p p2psim-cuda -p p2psim-cudart -p p2psim-hip
	$(call arm_sim,$(ARM_BUILD))
	$(call programs_for,aarch64,$(ARM_SIM),$(ARM)/c-tests,--few)
	tests/arm.py --few

# The packages that `make dist DIST_MACHINE=aarch64` has made.
test-arm-dist: arm shim
	tests/arm.py --packages target/dist-aarch64
