# C and C++ test programs: `make c-tests` fills target/c-tests/.
# A program of the runtime API is built per flavour: NAME-11, -12, -13 (shared runtime) and NAME-static (simulated runtime).
# Shared flavours link with NVIDIA's own library: at run time LD_LIBRARY_PATH decides whether GPUs are real or simulated.
C_TESTS := target/c-tests
NVIDIA := target/nvidia
SIM_LIB ?= target/sim/lib

C_TESTS_FLAGS := -Wall -Wextra -Werror -O1 -g -Ic-tests
C_TESTS_CC = $(CC) -std=c11 $(C_TESTS_FLAGS)
C_TESTS_CXX = $(CXX) -std=c++17 $(C_TESTS_FLAGS)
C_TESTS_STATIC := -ldl -lpthread -lrt -lm -lgcc_s

# Programs of the runtime API, in every flavour.
C_RUNTIME_CASES := guide_sample
C_RUNTIME_PROGRAMS := $(foreach case,conformance $(C_RUNTIME_CASES),$(addprefix $(C_TESTS)/$(case)-,11 12 13 static))

.PHONY: c-tests
c-tests: $(C_RUNTIME_PROGRAMS)

$(NVIDIA)/stamp: c-tests/fetch-nvidia c-tests/nvidia.txt
	c-tests/fetch-nvidia

$(C_TESTS):
	mkdir -p $@

# The archive is the simulator's business: ask for it, and link again only if it changed.
$(SIM_LIB)/libcudart_static.a: | sim ;

vpath %.c c-tests c-tests/cases

define shared_flavour # 1: name, 2: version in the soname
$(C_TESTS)/%-$(1): %.c c-tests/check.h $(NVIDIA)/stamp | $(C_TESTS)
	$$(C_TESTS_CC) -isystem $(NVIDIA)/cu$(1)/include $$< $(NVIDIA)/cu$(1)/lib/libcudart.so.$(2) -lpthread -ldl -o $$@
endef
$(eval $(call shared_flavour,11,11.0))
$(eval $(call shared_flavour,12,12))
$(eval $(call shared_flavour,13,13))

$(C_TESTS)/%-static: %.c c-tests/check.h $(SIM_LIB)/libcudart_static.a $(NVIDIA)/stamp | $(C_TESTS)
	$(C_TESTS_CC) -isystem $(NVIDIA)/cu13/include $< $(SIM_LIB)/libcudart_static.a $(C_TESTS_STATIC) -o $@
