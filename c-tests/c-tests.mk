# C and C++ test programs: `make c-tests` fills target/c-tests/.
# A program of the runtime API is built per flavour: NAME-11, -12, -13 (shared runtime) and NAME-static (simulated runtime);
# a few also as NAME-nvidia12, -nvidia13 (NVIDIA's static runtime, for real GPUs and for none).
# Shared flavours link with NVIDIA's own library: at run time LD_LIBRARY_PATH decides whether GPUs are real or simulated.
C_TESTS := target/c-tests
NVIDIA := target/nvidia
AMD := target/amd
UCX := target/ucx
PATCHERS := target/patchers
SIM_LIB ?= target/sim/lib

C_TESTS_FLAGS := -Wall -Wextra -Werror -O1 -g -Ic-tests
C_TESTS_CC = $(CC) -std=c11 $(C_TESTS_FLAGS)
C_TESTS_CXX = $(CXX) -std=c++17 $(C_TESTS_FLAGS)
C_TESTS_STATIC := -ldl -lpthread -lrt -lm -lgcc_s

# Programs of the runtime API: in every flavour.
C_RUNTIME_CASES := guide_sample four_copies_sizes per_thread_stream entry_point multithreaded null_arguments \
  exit_paths fork_child signal_longjmp log_limits raw_fork captured_copies copies_beside_capture all_pairs closed_stderr \
  sigpipe_stderr no_driver hidden ends_suddenly exec_again thread_limits treats_704_as_fatal copies_on_wrong_stream copies_from_pool \
  hip_for_nvidia children_sharing full_log regular_copies graph_copies staged_copies read_back
# Programs of both APIs: in every flavour, linked with the driver too.
C_BOTH_CASES := conformance ends_inside repeated_copies random_access random_arguments never_enables lists_peers findings random_graphs random_waits asks_like
# Of both, those that need headers of 12 or later.
C_RECENT_BOTH_CASES := blocked_stress captured_batches implicit_waits recapture soak stack_depth simple_p2p
# Of both, those that make sense with the runtimes of 8.0 to 10.2: NAME-8.0 to -10.2, with the simulated ones; those of NVIDIA are not here
# to link with. `legacy` and `enables_at_load` declare all functions themselves; the others have the headers of 11.8, and OLD_RUNTIME.
# tests/it/legacy_cases.rs says why the rest makes none.
LEGACY := 8.0 9.0 10.0 10.1 10.2
C_LEGACY_CASES := legacy enables_at_load guide_sample four_copies_sizes per_thread_stream multithreaded null_arguments exit_paths fork_child \
  signal_longjmp log_limits raw_fork captured_copies copies_beside_capture all_pairs closed_stderr sigpipe_stderr no_driver exec_again \
  thread_limits treats_704_as_fatal copies_on_wrong_stream hip_for_nvidia children_sharing full_log regular_copies staged_copies read_back
C_LEGACY_BOTH_CASES := conformance ends_inside repeated_copies random_access random_arguments never_enables lists_peers findings
# Programs without CUDA, or that load it themselves.
C_PLAIN_CASES := dlopen_local deepbind lookup_absent weak_reference two_copies global_then_local resolve_audit variable_named_so looks_up_driver thread_storage
# Programs that are run on the stand-in runtime.
C_STANDIN_CASES := cancelled_thread copies_left copies_stepped longjmp_out signal_between thrown_through trace_at_limit \
  trace_bound vforked_inside
# Programs of the driver API alone, each of which once went wrong under the shim.
C_DRIVER_CASES := broken_paths blocked_beside_frees copy_attributes floating_contexts pools_beside_capture capture_left_behind deny_pools disable_beside_copies enabled_unseen \
  limit_of_peers memory_of_another_process pool_granted_meanwhile two_disable without_vm_readv malloc_fails kept_verdict nvml_status freed_early \
  array_copies context_ends_during_proof late_copies graphs_together graph_left access_stress first_call_wrong streams_reused timing_beside_capture timing_beside_releases pool_rights_taken
C_DRIVER_CASES += forked_between full_queue third_device environment_moves batch_reads facts_taken_back
# Programs of HIP, in c-tests/hip: NAME-5, -6, -7 with the simulated library of each release.
C_HIP_CASES := hip_guide hip_conformance hip_random_sequences hip_random_arguments hip_dlopened hip_entry_point hip_and_cuda \
  hip_regular hip_threads hip_no_device hip_grants hip_for_kernels hip_opened hip_unknown_pointer hip_ends_inside hip_broken hip_past_end
# Programs that measure on real GPUs, built here so that they keep compiling; spinning.cu and held_up.cu need nvcc.
C_GPU_CASES := bandwidth busy_link first_use alloc_cost enqueue regular staging

C_PROGRAMS := $(foreach case,$(C_RUNTIME_CASES) $(C_BOTH_CASES),$(addprefix $(C_TESTS)/$(case)-,11 12 13 static)) \
  $(foreach case,$(C_RECENT_BOTH_CASES),$(addprefix $(C_TESTS)/$(case)-,12 13 static)) \
  $(foreach case,$(C_LEGACY_CASES) $(C_LEGACY_BOTH_CASES),$(LEGACY:%=$(C_TESTS)/$(case)-%)) $(addprefix $(C_TESTS)/,legacy-old_linker legacy-with_shim old_driver_forms) \
  $(foreach case,$(C_GPU_CASES),$(C_TESTS)/$(case)-static) \
  $(foreach case,$(C_HIP_CASES),$(addprefix $(C_TESTS)/$(case)-,5 6 7)) \
  $(addprefix $(C_TESTS)/,$(C_PLAIN_CASES) $(C_STANDIN_CASES) $(C_DRIVER_CASES) causes-12 copies_interrupted forked_inside forked_during_start constructor_waits driver_api every_call unwinds moving_parameters same_pointer two_majors library_constructor \
  $(addprefix call_sites-,frames plain stripped shared) wraps_dlsym unversioned_reference missing_function pools_after_reset $(foreach case,conformance guide_sample no_driver,$(case)-nvidia12 $(case)-nvidia13))
# Tests of the C interface, by linking with the shim and without, under the sanitizers for addresses and undefined behaviour.
C_CAPI_PROGRAMS := $(C_TESTS)/capi-linked $(C_TESTS)/capi-found $(C_TESTS)/capi-wrapper
C_PROGRAMS += $(C_CAPI_PROGRAMS) $(addprefix $(C_TESTS)/,ucx_events eight_arguments)
C_LIBRARIES := $(addprefix $(C_TESTS)/,libplugin-11.so libplugin-12.so libplugin-13.so libplugin-12-copy.so \
  libcudart-12-copy.so libat_load.so libwaits_at_load.so libotherhook.so libwraps_driver.so libwraps_driver_symbolic.so libdriver_client.so libstatic_tls.so libfailing_alloc.so libaudit.so libinjection.so libvariables.so libenables_unseen.so standin-driver/libcuda.so.1 reusing-driver/libcuda.so.1 old-driver/libcuda.so.1)

# As many at a time as there are cores, unless make was told already; the headers, which all need, come first.
.PHONY: c-tests c-programs
c-tests: $(NVIDIA)/stamp
	$(MAKE) --no-print-directory $(if $(filter -j% --jobserver-auth=%,$(MAKEFLAGS)),,-j$(shell nproc)) c-programs
c-programs: $(C_PROGRAMS) $(C_LIBRARIES) $(AMD)/stamp $(PATCHERS)/stamp

$(NVIDIA)/stamp: c-tests/fetch-nvidia c-tests/nvidia.txt
	c-tests/fetch-nvidia

# Only run, not linked with: the simulated ones have the same symbols.
$(AMD)/stamp: c-tests/fetch-debian c-tests/amd.txt
	c-tests/fetch-debian amd

$(UCX)/stamp: c-tests/fetch-wheels c-tests/ucx.txt
	c-tests/fetch-wheels ucx
$(PATCHERS)/stamp: c-tests/fetch-wheels c-tests/patchers.txt
	c-tests/fetch-wheels patchers

# These are the simulator's business: ask for them, and link again only if they changed.
$(addprefix $(SIM_LIB)/,libcudart_static.a libcudart.so.12 libcuda.so.1 libamdhip64.so.5 libamdhip64.so.6 libamdhip64.so.7): | sim ;

C_TESTS_FOLDERS := $(addprefix $(C_TESTS)/,. stub standin-runtime standin-driver reusing-driver old-driver null-driver unseen-runtime)
$(C_TESTS_FOLDERS):
	mkdir -p $@
$(C_PROGRAMS) $(C_LIBRARIES): c-tests/check.h c-tests/graph_ends.h c-tests/conformance_graphs.h $(wildcard c-tests/lib/*.h c-tests/gpu/*.h) $(NVIDIA)/stamp | $(C_TESTS_FOLDERS)

vpath %.c c-tests c-tests/cases c-tests/lib c-tests/gpu c-tests/hip
vpath %.cpp c-tests/cases

CU11 := -isystem $(NVIDIA)/cu11/include
CU12 := -isystem $(NVIDIA)/cu12/include
CU13 := -isystem $(NVIDIA)/cu13/include
CUDART11 := $(NVIDIA)/cu11/lib/libcudart.so.11.0
CUDART12 := $(NVIDIA)/cu12/lib/libcudart.so.12
CUDART13 := $(NVIDIA)/cu13/lib/libcudart.so.13
C_LIBRARY := -shared -fPIC
BESIDE := '-Wl,-rpath,$$ORIGIN'

# They find the driver as they find the runtime: by LD_LIBRARY_PATH, or the real one.
$(foreach case,$(C_BOTH_CASES) $(C_RECENT_BOTH_CASES),$(addprefix $(C_TESTS)/$(case)-,11 12 13 static)): C_TESTS_DRIVER = $(SIM_LIB)/libcuda.so.1
$(foreach case,$(C_BOTH_CASES) $(C_RECENT_BOTH_CASES),$(addprefix $(C_TESTS)/$(case)-,11 12 13 static)): $(SIM_LIB)/libcuda.so.1
$(C_TESTS)/busy_link-static $(C_TESTS)/regular-static $(C_TESTS)/causes-12: C_TESTS_DRIVER = $(SIM_LIB)/libcuda.so.1
$(C_TESTS)/busy_link-static $(C_TESTS)/regular-static $(C_TESTS)/causes-12: $(SIM_LIB)/libcuda.so.1

# Only to link with: they are for machines with a driver.
$(foreach runtime,nvidia12 nvidia13,$(C_TESTS)/conformance-$(runtime)): C_TESTS_DRIVER = $(SIM_LIB)/libcuda.so.1
$(foreach runtime,nvidia12 nvidia13,$(C_TESTS)/conformance-$(runtime)): $(SIM_LIB)/libcuda.so.1

$(C_TESTS)/%-11: %.c
	$(C_TESTS_CC) $(CU11) $< $(CUDART11) $(C_TESTS_DRIVER) -lpthread -ldl -o $@
$(C_TESTS)/%-12: %.c
	$(C_TESTS_CC) $(CU12) $< $(CUDART12) $(C_TESTS_DRIVER) -lpthread -ldl -o $@
$(C_TESTS)/%-13: %.c
	$(C_TESTS_CC) $(CU13) $< $(CUDART13) $(C_TESTS_DRIVER) -lpthread -ldl -o $@
$(C_TESTS)/%-static: %.c $(SIM_LIB)/libcudart_static.a
	$(C_TESTS_CC) $(CU13) $< $(SIM_LIB)/libcudart_static.a $(C_TESTS_DRIVER) $(C_TESTS_STATIC) -o $@
$(C_TESTS)/%-nvidia12: %.c
	$(C_TESTS_CC) $(CU12) $< $(NVIDIA)/cu12/lib/libcudart_static.a $(C_TESTS_DRIVER) -ldl -lpthread -lrt -o $@
$(C_TESTS)/%-nvidia13: %.c
	$(C_TESTS_CC) $(CU13) $< $(NVIDIA)/cu13/lib/libcudart_static.a $(C_TESTS_DRIVER) -ldl -lpthread -lrt -o $@

$(foreach version,$(LEGACY),$(SIM_LIB)/libcudart.so.$(version)): | sim ;
# Compiled once, and linked with each.
C_LEGACY_OBJECTS := $(patsubst %,$(C_TESTS)/%-old.o,$(C_LEGACY_CASES) $(C_LEGACY_BOTH_CASES))
$(C_LEGACY_OBJECTS): c-tests/check.h c-tests/graph_ends.h c-tests/conformance_graphs.h $(NVIDIA)/stamp | $(C_TESTS_FOLDERS)
$(C_LEGACY_OBJECTS): $(C_TESTS)/%-old.o: %.c
	$(C_TESTS_CC) $(if $(filter legacy enables_at_load,$*),,-DOLD_RUNTIME $(CU11)) -c $< -o $@
$(foreach case,$(C_LEGACY_BOTH_CASES),$(LEGACY:%=$(C_TESTS)/$(case)-%)): C_TESTS_DRIVER = $(SIM_LIB)/libcuda.so.1
$(foreach case,$(C_LEGACY_BOTH_CASES),$(LEGACY:%=$(C_TESTS)/$(case)-%)): $(SIM_LIB)/libcuda.so.1
define legacy
$(C_LEGACY_OBJECTS:%-old.o=%-$1): $(C_TESTS)/%-$1: $(C_TESTS)/%-old.o $(SIM_LIB)/libcudart.so.$1
	$(CC) $$< $(SIM_LIB)/libcudart.so.$1 $$(C_TESTS_DRIVER) -lpthread -ldl -o $$@
endef
$(foreach version,$(LEGACY),$(eval $(call legacy,$(version))))
# As linkers of 2010 made programs: another hash table, symbols bound when they are called, and an RPATH, which comes before LD_LIBRARY_PATH.
$(C_TESTS)/legacy-old_linker: legacy.c $(SIM_LIB)/libcudart.so.9.0
	$(C_TESTS_CC) $< $(SIM_LIB)/libcudart.so.9.0 -Wl,--hash-style=sysv,-z,lazy,-z,norelro,--disable-new-dtags,-rpath,$(abspath $(SIM_LIB)) -o $@
# With the shim as one of its libraries, found by RPATH, so that it is there whatever the dynamic linker ignores.
$(C_TESTS)/legacy-with_shim: legacy.c $(SIM_LIB)/libcudart.so.9.0 | $(SHIM)
	$(C_TESTS_CC) $< -Wl,--no-as-needed $(SHIM) $(SIM_LIB)/libcudart.so.9.0 -Wl,--disable-new-dtags,-rpath,$(abspath $(dir $(SHIM))):$(abspath $(SIM_LIB)) -o $@
$(C_TESTS)/old_driver_forms: old_driver_forms.c $(C_TESTS)/old-driver/libcuda.so.1
	$(C_TESTS_CC) $< $(C_TESTS)/old-driver/libcuda.so.1 -ldl -o $@

$(foreach case,hip_dlopened hip_opened,$(addprefix $(C_TESTS)/$(case)-,5 6 7)): HIP_UNLINKED := yes
$(addprefix $(C_TESTS)/hip_and_cuda-,5 6 7): HIP_FLAGS := $(CU12)
$(addprefix $(C_TESTS)/hip_and_cuda-,5 6 7): HIP_BESIDE := $(CUDART12)
$(addprefix $(C_TESTS)/,$(C_HIP_CASES:%=%-5)): $(C_TESTS)/%-5: %.c $(SIM_LIB)/libamdhip64.so.5 $(wildcard c-tests/hip/*.h)
	$(C_TESTS_CC) -DHIP_MAJOR=5 $(HIP_FLAGS) $< $(if $(HIP_UNLINKED),,$(SIM_LIB)/libamdhip64.so.5) $(HIP_BESIDE) -lpthread -ldl -o $@
$(addprefix $(C_TESTS)/,$(C_HIP_CASES:%=%-6)): $(C_TESTS)/%-6: %.c $(SIM_LIB)/libamdhip64.so.6 $(wildcard c-tests/hip/*.h)
	$(C_TESTS_CC) -DHIP_MAJOR=6 $(HIP_FLAGS) $< $(if $(HIP_UNLINKED),,$(SIM_LIB)/libamdhip64.so.6) $(HIP_BESIDE) -lpthread -ldl -o $@
$(addprefix $(C_TESTS)/,$(C_HIP_CASES:%=%-7)): $(C_TESTS)/%-7: %.c $(SIM_LIB)/libamdhip64.so.7 $(wildcard c-tests/hip/*.h)
	$(C_TESTS_CC) -DHIP_MAJOR=7 $(HIP_FLAGS) $< $(if $(HIP_UNLINKED),,$(SIM_LIB)/libamdhip64.so.7) $(HIP_BESIDE) -lpthread -ldl -o $@

$(addprefix $(C_TESTS)/,$(C_PLAIN_CASES)): $(C_TESTS)/%: %.c
	$(C_TESTS_CC) $(CU12) $< -ldl $(BESIDE) -o $@
$(addprefix $(C_TESTS)/,$(C_DRIVER_CASES)): $(C_TESTS)/%: %.c $(SIM_LIB)/libcuda.so.1
	$(C_TESTS_CC) $(CU12) $< $(SIM_LIB)/libcuda.so.1 -lpthread -ldl -o $@
$(addprefix $(C_TESTS)/,driver_api moving_parameters pools_after_reset): $(C_TESTS)/%: %.c $(SIM_LIB)/libcuda.so.1
	$(C_TESTS_CC) $(CU12) $< $(SIM_LIB)/libcuda.so.1 -ldl -o $@
$(addprefix $(C_TESTS)/,same_pointer every_call unwinds): $(C_TESTS)/%: %.c $(SIM_LIB)/libcuda.so.1
	$(C_TESTS_CC) $(CU12) $< $(CUDART12) $(SIM_LIB)/libcuda.so.1 -ldl -o $@
$(C_TESTS)/two_majors: two_majors.c
	$(C_TESTS_CC) $(CU12) $< $(CUDART12) -ldl $(BESIDE) -o $@
$(C_TESTS)/library_constructor: library_constructor.c $(C_TESTS)/libat_load.so
	$(C_TESTS_CC) $< $(C_TESTS)/libat_load.so -Wl,--allow-shlib-undefined $(BESIDE) -o $@
$(C_TESTS)/wraps_dlsym: wraps_dlsym.c
	$(C_TESTS_CC) $(CU12) -rdynamic $< $(CUDART12) -ldl -o $@
$(C_TESTS)/eight_arguments: eight_arguments.c
	$(C_TESTS_CC) $(CU13) $< $(CUDART13) -o $@
$(C_TESTS)/ucx_events: ucx_events.c $(SIM_LIB)/libcuda.so.1 $(UCX)/stamp
	$(C_TESTS_CC) -isystem $(UCX)/libucx/include $(CU12) $< $(CUDART12) $(SIM_LIB)/libcuda.so.1 -ldl -o $@
$(addprefix $(C_TESTS)/,forked_during_start constructor_waits): $(C_TESTS)/%: %.c $(SIM_LIB)/libcuda.so.1
	$(C_TESTS_CC) $(CU12) -rdynamic $< $(SIM_LIB)/libcuda.so.1 -lpthread -ldl -o $@
$(C_TESTS)/unversioned_reference: unversioned_reference.c $(C_TESTS)/stub/libcudart.so.12
	$(C_TESTS_CC) $(CU12) $< $(C_TESTS)/stub/libcudart.so.12 -o $@
$(C_TESTS)/missing_function: missing_function.c
	$(C_TESTS_CC) $(CU12) -Wl,-z,lazy $< $(CUDART12) -o $@
$(addprefix $(C_TESTS)/,$(filter-out thrown_through,$(C_STANDIN_CASES))): $(C_TESTS)/%: %.c $(C_TESTS)/standin-runtime/libcudart.so.12
	$(C_TESTS_CC) $(CU12) $< $(C_TESTS)/standin-runtime/libcudart.so.12 -lpthread -o $@
# On the stand-in runtime and the simulated driver.
$(C_TESTS)/forked_inside: forked_inside.c $(C_TESTS)/standin-runtime/libcudart.so.12 $(SIM_LIB)/libcuda.so.1
	$(C_TESTS_CC) $(CU12) $< $(C_TESTS)/standin-runtime/libcudart.so.12 $(SIM_LIB)/libcuda.so.1 -o $@
# On the benchmarks' driver, which does nothing and so takes no lock.
$(C_TESTS)/copies_interrupted: copies_interrupted.c $(C_TESTS)/null-driver/libcudart.so.12 $(C_TESTS)/null-driver/libcuda.so.1 include/p2pshim.h
	$(C_TESTS_CC) -Ibenches -Iinclude $< $(C_TESTS)/null-driver/libcudart.so.12 -ldl -o $@
$(C_TESTS)/null-driver/libcudart.so.12: driving_runtime.c benches/null_cuda.h | $(C_TESTS_FOLDERS)
	$(C_TESTS_CC) $(C_LIBRARY) -Ibenches $< -Wl,-soname,libcudart.so.12 -ldl -o $@
$(C_TESTS)/null-driver/libcuda.so.1: benches/null_driver.c benches/null_cuda.h | $(C_TESTS_FOLDERS)
	$(C_TESTS_CC) $(C_LIBRARY) $< -Wl,-soname,libcuda.so.1,-Bsymbolic -o $@
# With a stand-in for NVIDIA's static runtime: with all that helps to unwind, with nothing that is not needed, and without symbols;
# and as a shared runtime, by a function that has no row, and of a version that nobody has.
CALL_SITES := $(addprefix $(C_TESTS)/call_sites,-frames -plain -stripped -shared)
$(CALL_SITES): call_sites.c static_runtime.c c-tests/lib/static_runtime.h
$(C_TESTS)/call_sites-frames: C_TESTS_FLAGS += -O0 -fno-omit-frame-pointer
$(C_TESTS)/call_sites-plain $(C_TESTS)/call_sites-stripped: C_TESTS_FLAGS += -O2 -fomit-frame-pointer
$(C_TESTS)/call_sites-stripped: C_TESTS_FLAGS += -s
$(addprefix $(C_TESTS)/call_sites,-frames -plain -stripped):
	$(C_TESTS_CC) -Ic-tests/lib $(CU12) $(filter %.c,$^) -lpthread -ldl -o $@
$(C_TESTS)/call_sites-shared: $(C_TESTS)/unseen-runtime/libcudart.so.99
	$(C_TESTS_CC) -Ic-tests/lib $(UNSEEN) $(filter %/call_sites.c,$^) $(C_TESTS)/unseen-runtime/libcudart.so.99 '-Wl,-rpath,$$ORIGIN/unseen-runtime' -lpthread -o $@
UNSEEN := -DcudaMemcpyPeerAsync=cudaMemcpyUnseen -DcudaMalloc=cudaMallocUnseen -DcudaSetDevice=cudaSetDeviceUnseen
$(C_TESTS)/unseen-runtime/libcudart.so.99: static_runtime.c c-tests/lib/static_runtime.h | $(C_TESTS_FOLDERS)
	$(C_TESTS_CC) $(C_LIBRARY) -O2 $(CU12) $(UNSEEN) $< -Wl,-soname,libcudart.so.99 -ldl -o $@
$(C_TESTS)/thrown_through: thrown_through.cpp $(C_TESTS)/standin-runtime/libcudart.so.12
	$(C_TESTS_CXX) $(CU12) $< $(C_TESTS)/standin-runtime/libcudart.so.12 -o $@

C_CAPI_FILES := $(wildcard c-tests/capi/*.c)
C_CAPI_FLAGS := -D_GNU_SOURCE -Iinclude $(CU12) -fsanitize=address,undefined -fno-sanitize-recover=all -static-libasan -static-libubsan
C_CAPI_LINK := -Wl,--no-as-needed $(SHIM) -Wl,--as-needed -lpthread -ldl
$(C_CAPI_PROGRAMS): $(C_CAPI_FILES) c-tests/capi/capi.h include/p2pshim.h | $(SHIM)
$(C_TESTS)/capi-wrapper: c-tests/capi/wrapper.cpp include/p2pshim.hpp
	$(CXX) -std=c++11 $(C_TESTS_FLAGS) $(C_CAPI_FLAGS) $< $(C_CAPI_LINK) -o $@
$(C_TESTS)/capi-linked:
	$(C_TESTS_CC) $(C_CAPI_FLAGS) -DLINKED $(C_CAPI_FILES) $(C_CAPI_LINK) -o $@
$(C_TESTS)/capi-found:
	$(C_TESTS_CC) $(C_CAPI_FLAGS) $(C_CAPI_FILES) -lpthread -ldl -o $@

$(C_TESTS)/libplugin-11.so: plugin.c
	$(C_TESTS_CC) $(C_LIBRARY) $(CU11) $< $(CUDART11) -o $@
$(C_TESTS)/libplugin-12.so: plugin.c
	$(C_TESTS_CC) $(C_LIBRARY) $(CU12) $< $(CUDART12) -o $@
$(C_TESTS)/libplugin-13.so: plugin.c
	$(C_TESTS_CC) $(C_LIBRARY) $(CU13) $< $(CUDART13) -o $@
$(C_TESTS)/libplugin-12-copy.so: plugin.c $(C_TESTS)/stub/libcudart-12-copy.so
	$(C_TESTS_CC) $(C_LIBRARY) $(CU12) $< $(C_TESTS)/stub/libcudart-12-copy.so $(BESIDE) -o $@
$(C_TESTS)/libcudart-12-copy.so: $(SIM_LIB)/libcudart.so.12
	cp $< $@
$(C_TESTS)/libat_load.so: at_load.c
	$(C_TESTS_CC) $(C_LIBRARY) $(CU12) $< $(CUDART12) -Wl,-soname,libat_load.so -o $@
$(addprefix $(C_TESTS)/,libvariables.so libstatic_tls.so libwaits_at_load.so): $(C_TESTS)/lib%.so: %.c
	$(C_TESTS_CC) $(C_LIBRARY) $< -o $@
$(C_TESTS)/libenables_unseen.so $(C_TESTS)/libdriver_client.so: $(C_TESTS)/lib%.so: %.c $(SIM_LIB)/libcuda.so.1
	$(C_TESTS_CC) $(C_LIBRARY) $(CU12) $< $(SIM_LIB)/libcuda.so.1 -o $@
$(C_TESTS)/libotherhook.so: otherhook.c
	$(C_TESTS_CC) $(C_LIBRARY) $< -ldl -o $@
$(C_TESTS)/libwraps_driver.so: wraps_driver.c
	$(C_TESTS_CC) $(C_LIBRARY) $< -ldl -o $@
$(C_TESTS)/libwraps_driver_symbolic.so: wraps_driver.c
	$(C_TESTS_CC) $(C_LIBRARY) -Wl,-Bsymbolic $< -ldl -o $@
$(C_TESTS)/libfailing_alloc.so: failing_alloc.c
	$(C_TESTS_CC) $(C_LIBRARY) $< -o $@
$(C_TESTS)/libaudit.so: audit.c
	$(C_TESTS_CC) $(C_LIBRARY) $< -o $@
$(C_TESTS)/libinjection.so: injection.c
	$(C_TESTS_CC) $(C_LIBRARY) $(CU12) $< -ldl -o $@
$(C_TESTS)/standin-driver/libcuda.so.1: standin_cuda.c
	$(C_TESTS_CC) $(C_LIBRARY) $< -Wl,-soname,libcuda.so.1 -lpthread -o $@
$(C_TESTS)/old-driver/libcuda.so.1: old_driver.c reusing_driver.c
	$(C_TESTS_CC) $(C_LIBRARY) $(filter %.c,$^) -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -lpthread -o $@
$(C_TESTS)/reusing-driver/libcuda.so.1: reusing_driver.c
	$(C_TESTS_CC) $(C_LIBRARY) $< -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -lpthread -o $@
$(C_TESTS)/standin-runtime/libcudart.so.12: standin_runtime.c c-tests/lib/cudart12.map $(NVIDIA)/stamp | $(C_TESTS_FOLDERS)
	$(C_TESTS_CC) $(C_LIBRARY) -fexceptions $(CU12) $< -Wl,-soname,libcudart.so.12,--version-script=c-tests/lib/cudart12.map -o $@
$(C_TESTS)/stub/libcudart.so.12: stub_runtime.c | $(C_TESTS_FOLDERS)
	$(C_TESTS_CC) $(C_LIBRARY) $< -Wl,-soname,libcudart.so.12 -o $@
$(C_TESTS)/stub/libcudart-12-copy.so: stub_runtime.c c-tests/lib/cudart12.map | $(C_TESTS_FOLDERS)
	$(C_TESTS_CC) $(C_LIBRARY) $< -Wl,-soname,libcudart-12-copy.so,--version-script=c-tests/lib/cudart12.map -o $@
