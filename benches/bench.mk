# Benchmarks: `make bench` measures what the shim costs the host and fails if that exceeds the limits.
# `make bench BENCH_ROUTES="runtime driver"` measures only some of the routes that a call takes. `make bench-instructions`
# counts instructions only, which takes a minute and does not depend on the machine; it needs valgrind. `make bench-many COPIES=n`
# counts instructions and memory where there are many streams and graphs. `make test` runs each variant once, without measuring.

BENCH := target/bench
BENCH_SHIM ?= $(SHIM)
BENCH_CC = $(CC) -std=c11 -Wall -Wextra -Werror -O2 -falign-functions=64 -falign-loops=64
BENCH_LIBRARY := -shared -fPIC

.PHONY: bench bench-instructions bench-many bench-programs valgrind
bench: shim bench-programs
	status=0; \
	$(MAKE) --no-print-directory bench-instructions || status=1; \
	$(MAKE) --no-print-directory bench-many || status=1; \
	benches/host-cost $(BENCH) $(BENCH_SHIM) $(BENCH_ROUTES) || status=1; \
	exit $$status

bench-instructions: shim bench-programs valgrind
	benches/host-cost --instructions $(BENCH) $(BENCH_SHIM) $(BENCH_ROUTES)

bench-many: shim bench-programs valgrind
	benches/host-cost --many $(or $(COPIES),1000000) $(BENCH) $(BENCH_SHIM)

valgrind:
	command -v valgrind >/dev/null || c-tests/fetch-debian valgrind

bench-programs: $(addprefix $(BENCH)/,libcudart.so.12 libcuda.so.1 libjump_only.so liblttng_wrapper.so call_cost start_cost events/libcuda.so.1 many_streams)

$(BENCH):
	mkdir -p $@

$(BENCH)/libcudart.so.12: benches/null_runtime.c benches/null_runtime.map benches/null_cuda.h | $(BENCH)
	$(BENCH_CC) $(BENCH_LIBRARY) -fno-plt $< -Wl,-soname,libcudart.so.12,--version-script=benches/null_runtime.map -o $@

$(BENCH)/libcuda.so.1: benches/null_driver.c benches/null_cuda.h | $(BENCH)
	$(BENCH_CC) $(BENCH_LIBRARY) $< -Wl,-soname,libcuda.so.1,-Bsymbolic -o $@

# With streams and events, in a folder of its own: the figures of a call are those without.
$(BENCH)/events/libcuda.so.1: benches/null_driver.c benches/null_events.c benches/null_cuda.h
	mkdir -p $(@D)
	$(BENCH_CC) $(BENCH_LIBRARY) -pthread $(filter %.c,$^) -Wl,-soname,libcuda.so.1,-Bsymbolic -o $@

$(BENCH)/many_streams: benches/many_streams.c benches/null_cuda.h $(BENCH)/events/libcuda.so.1
	$(BENCH_CC) -fPIE -pie $(filter-out %.h,$^) -Wl,-z,now '-Wl,-rpath,$$ORIGIN/events' -o $@

$(BENCH)/libjump_only.so: benches/jump_only.c benches/null_cuda.h | $(BENCH)
	$(BENCH_CC) $(BENCH_LIBRARY) $< -ldl -o $@

# Only where there is LTTng-UST with the names that it has had since 2.13; without, host-cost says so.
LTTNG_PROBE := \#include <lttng/tracepoint.h>\n\#ifndef LTTNG_UST_TRACEPOINT_EVENT\n\#error\n\#endif\n
HAS_LTTNG = printf '$(LTTNG_PROBE)' | $(CC) -E -o /dev/null - 2>/dev/null
$(BENCH)/liblttng_wrapper.so: benches/lttng_wrapper.c benches/lttng_copies.h benches/null_cuda.h | $(BENCH)
	if $(HAS_LTTNG); then $(BENCH_CC) $(BENCH_LIBRARY) -Ibenches $< -llttng-ust -ldl -o $@; fi

# Bound before it runs, and as PIE: so the address of a linked function is that of the code called.
$(BENCH)/call_cost: benches/call_cost.c benches/null_cuda.h $(BENCH)/libcudart.so.12 $(BENCH)/libcuda.so.1
	$(BENCH_CC) -fPIE -pie -pthread $(filter-out %.h,$^) -ldl -Wl,-z,now '-Wl,-rpath,$$ORIGIN' -o $@

$(BENCH)/start_cost: benches/start_cost.c | $(BENCH)
	$(BENCH_CC) -static $< -o $@
