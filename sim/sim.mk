# Simulated GPUs: `make sim` fills $(SIM_LIB) with
#   libcuda.so.1                          the driver (symlink libcuda.so)
#   libcudart.so.8.0, .9.0, .10.0, .10.1, .10.2, .11.0, .12, .13
#                                         the runtime with each version's symbols; <version>/libcudart.so to link with
#   libnvidia-ml.so.1                     NVML, if P2PSIM_NVLINK names a folder
#   libamdhip64.so.5, .6, .7              HIP 5.7, 6.4 and 7.1; <major>/libamdhip64.so to link with (libamdhip64.so: 6)
#   libcudart_static.a                    the runtime, 13.0: -lcudart_static -ldl -lpthread -lrt -lm -lgcc_s
SIM_LIB ?= target/sim/lib
SIM_CARGO_TARGET := $(or $(CARGO_TARGET_DIR),target)

# Cargo knows best what is out of date; link.mk then links only what cargo has changed.
.PHONY: sim
sim: $(if $(IS_DIST),dist-build)
	$(if $(IS_DIST),,$(or $(CARGO),cargo) build --release -p p2psim-cuda -p p2psim-cudart -p p2psim-hip)
	@$(MAKE) --no-print-directory -f sim/link.mk LIB=$(SIM_LIB) ARCHIVES=$(if $(IS_DIST),$(DIST_BUILD),$(SIM_CARGO_TARGET)/release)
