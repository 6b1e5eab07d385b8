# C and C++ test programs: `make c-tests` fills target/c-tests/. How a file is built, its first comment line says: README.md has the words.
# Shared flavours link with NVIDIA's own library: at run time LD_LIBRARY_PATH decides whether GPUs are real or simulated.
C_TESTS := target/c-tests
NVIDIA := target/nvidia
AMD := target/amd
UCX := target/ucx
PATCHERS := target/patchers
SIM_LIB ?= target/sim/lib

C_TESTS_FLAGS := -Wall -Wextra -Werror -O1 -g -Ic-tests -I$(C_TESTS)
C_TESTS_CC = $(CC) -std=c11 -D_GNU_SOURCE= $(C_TESTS_FLAGS)
C_TESTS_CXX = $(CXX) -std=c++17 $(C_TESTS_FLAGS)
CU11 := -isystem $(NVIDIA)/cu11/include
CU12 := -isystem $(NVIDIA)/cu12/include
CU13 := -isystem $(NVIDIA)/cu13/include
CUDART11 := $(NVIDIA)/cu11/lib/libcudart.so.11.0
CUDART12 := $(NVIDIA)/cu12/lib/libcudart.so.12
CUDART13 := $(NVIDIA)/cu13/lib/libcudart.so.13
# For an RPATH.
SIM_FOLDER := $(abspath $(SIM_LIB))
SHIM_FOLDER := $(abspath $(dir $(SHIM)))

# As many at a time as there are cores, unless make was told already.
PARALLEL = $(if $(filter -j% --jobserver-auth=%,$(MAKEFLAGS)),,-j$(shell nproc))
# The headers, which all need, come first.
.PHONY: c-tests c-programs
c-tests: $(NVIDIA)/stamp shim sim
	$(MAKE) --no-print-directory $(PARALLEL) c-programs

# Only where programs are wanted: it needs Python.
C_FOLDERS := $(addprefix c-tests/,. cases gpu hip lib)
ifneq ($(filter c-programs $(C_TESTS)/%,$(MAKECMDGOALS)),)
include $(C_TESTS)/rules.mk
endif
$(C_TESTS)/rules.mk: c-tests/make-rules $(C_FOLDERS) $(foreach end,c cpp cu,$(wildcard $(C_FOLDERS:%=%/*.$(end))))
	mkdir -p $(@D)
	c-tests/make-rules >$@

# Rules that no line can say: a copy, a library of the benchmarks, and tests of the C interface, by linking with the shim and without,
# under the sanitizers for addresses and undefined behaviour.
C_CAPI_PROGRAMS := $(addprefix $(C_TESTS)/capi-,linked found wrapper)
C_PROGRAMS += $(addprefix $(C_TESTS)/,libcudart-12-copy.so null-driver/libcuda.so.1) $(C_CAPI_PROGRAMS)
c-programs: $(C_PROGRAMS) $(AMD)/stamp $(PATCHERS)/stamp
$(C_PROGRAMS): $(wildcard $(C_FOLDERS:%=%/*.h)) $(NVIDIA)/stamp | $(sort $(dir $(C_PROGRAMS)))
$(sort $(dir $(C_PROGRAMS))):
	mkdir -p $@
# The rows of the tables, which these programs compile.
$(filter $(C_TESTS)/conformance-% $(C_TESTS)/hip_conformance-%,$(C_PROGRAMS)): $(C_TESTS)/conformance_calls.h
CONFORMANCE_TABLES := $(addprefix tests/golden/,$(addprefix conformance,.tsv -regular.tsv -graphs.tsv) hip-conformance.tsv)
$(C_TESTS)/conformance_calls.h: c-tests/make-conformance $(CONFORMANCE_TABLES) c-tests/conformance-unmeasured.tsv
	c-tests/make-conformance $(@D)
$(filter $(C_TESTS)/random_arguments-%,$(C_PROGRAMS)): $(C_TESTS)/finding_rules.h
$(C_TESTS)/finding_rules.h: src/model/rules.txt
	sed -n 's/^[A-Z]\w* \(P2P-\S*\) \(\w*\) \(\S*\) \(\S*\) .*/{"\1", "\2", \3, \4},/p' $< >$@
# These are the simulator's business: ask for them, and link again only if they changed.
$(SIM_LIB)/%: | sim ;

$(C_TESTS)/libcudart-12-copy.so: $(SIM_LIB)/libcudart.so.12
	cp $< $@
$(C_TESTS)/null-driver/libcuda.so.1: benches/null_driver.c benches/null_cuda.h
	$(C_TESTS_CC) -shared -fPIC $< -Wl,-soname,libcuda.so.1,-Bsymbolic -o $@
# It includes them.
$(C_TESTS)/blocking-driver/libcuda.so.1: benches/null_driver.c benches/null_events.c

C_CAPI_FILES := $(wildcard c-tests/capi/*.c)
C_CAPI_FLAGS := -Iinclude $(CU12) -fsanitize=address,undefined -fno-sanitize-recover=all -static-libasan -static-libubsan
C_CAPI_LINK := -Wl,--no-as-needed $(SHIM) -Wl,--as-needed -lpthread -ldl
$(C_CAPI_PROGRAMS): $(C_CAPI_FILES) c-tests/capi/capi.h include/p2pshim.h | $(SHIM)
$(C_TESTS)/capi-wrapper: c-tests/capi/wrapper.cpp include/p2pshim.hpp
	$(CXX) -std=c++11 $(C_TESTS_FLAGS) $(C_CAPI_FLAGS) $< $(C_CAPI_LINK) -o $@
$(C_TESTS)/capi-linked:
	$(C_TESTS_CC) $(C_CAPI_FLAGS) -DLINKED $(C_CAPI_FILES) $(C_CAPI_LINK) -o $@
$(C_TESTS)/capi-found:
	$(C_TESTS_CC) $(C_CAPI_FLAGS) $(C_CAPI_FILES) -lpthread -ldl -o $@

$(NVIDIA)/stamp: c-tests/fetch-nvidia c-tests/nvidia.txt
	c-tests/fetch-nvidia
# Only run, not linked with: the simulated ones have the same symbols.
$(AMD)/stamp: c-tests/fetch-debian c-tests/amd.txt
	c-tests/fetch-debian amd
$(UCX)/stamp: c-tests/fetch-wheels c-tests/ucx.txt
	c-tests/fetch-wheels ucx
$(PATCHERS)/stamp: c-tests/fetch-wheels c-tests/patchers.txt
	c-tests/fetch-wheels patchers
