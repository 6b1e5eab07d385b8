# Makes libraries of the simulated driver and runtime: called by sim.mk with LIB (where to) and ARCHIVES (from where), and by
# packaging.mk with the linker for an old glibc.
# The library that unwinds the stack.
UNWIND ?= -lgcc_s
OBJ := $(LIB)/../obj
CUDA := $(ARCHIVES)/libp2psim_cuda.a
CUDART := $(ARCHIVES)/libp2psim_cudart.a
HIP := $(ARCHIVES)/libp2psim_hip.a

# The runtime's versions: what cudaRuntimeGetVersion says, and which functions are not exported.
VERSIONS := 8.0 9.0 10.0 10.1 10.2 11.0 12 13
NUMBER_8.0 := 8000
NUMBER_9.0 := 9000
NUMBER_10.0 := 10000
NUMBER_10.1 := 10010
NUMBER_10.2 := 10020
NUMBER_11.0 := 11080
NUMBER_12 := 12090
NUMBER_13 := 13000
both = $(foreach name,$1,$(name); $(name)$2;)
NOT_IN_13 := cudaGetDeviceProperties_v2; cudaEventElapsedTime_v2;
ABSENT_13 := $(NOT_IN_13) cudaThreadExit; cudaThreadSynchronize; $(call both,cudaStreamGetCaptureInfo_v2 cudaStreamGetCaptureInfo_v3,_ptsz)
ABSENT_12 := cudaDeviceGetP2PAtomicCapabilities; cudaMemGetDefaultMemPool; cudaMemGetMemPool; cudaMemSetMemPool;
ABSENT_11.0 := $(NOT_IN_13) $(ABSENT_12) cudaInitDevice; $(call both,cudaGetDriverEntryPointByVersion \
	cudaStreamBeginCaptureToGraph cudaStreamGetCaptureInfo_v3 cudaGraphInstantiateWithParams \
	cudaMemcpyBatchAsync cudaMemcpy3DBatchAsync __cudaLaunchKernel,_ptsz) __cudaGetKernel; cudaGetKernel;
# Programs that nvcc has built start on 11.0 and later.
KERNELS := __cuda*; $(call both,cudaLaunchKernel cudaLaunchKernelExC,_ptsz) $(call both,cudaMemcpyToSymbol cudaMemcpyFromSymbol,_ptds) \
	cudaOccupancyMaxActiveBlocksPerMultiprocessor; cudaFuncGetAttributes; cudaFuncSetAttribute; cudaGetFuncBySymbol; cudaGetSymbolAddress; cudaGetSymbolSize;
# Before 11.0, by what NVIDIA's 9.0, 10.0, 10.1 and 10.2 export.
ABSENT_10.2 := $(ABSENT_11.0) $(patsubst %,cudaMemPool%;,Create Destroy ExportToShareableHandle ImportFromShareableHandle \
	ExportPointer ImportPointer GetAccess SetAccess GetAttribute SetAttribute TrimTo) cudaDeviceGetDefaultMemPool; cudaDeviceGetMemPool; cudaDeviceSetMemPool; \
	cudaGraphAddMemcpyNode1D; cudaGraphExecChildGraphNodeSetParams; cudaGraphExecMemcpyNodeSetParams1D; \
	cudaGraphInstantiateWithFlags; cudaGraphNodeSetEnabled; $(call both,cudaGraphUpload cudaMallocAsync cudaMallocFromPoolAsync \
	cudaFreeAsync cudaEventRecordWithFlags cudaGetDriverEntryPoint cudaStreamGetCaptureInfo_v2,_ptsz) $(KERNELS)
ABSENT_10.1 := $(ABSENT_10.2) cudaGraphExecMemcpyNodeSetParams; cudaGraphExecUpdate;
ABSENT_10.0 := $(ABSENT_10.1) cudaThreadExchangeStreamCaptureMode; $(call both,cudaStreamGetCaptureInfo,_ptsz)
ABSENT_9.0 := $(ABSENT_10.0) $(patsubst %,cudaGraph%;,AddChildGraphNode AddMemcpyNode ChildGraphNodeGetGraph Create Destroy ExecDestroy \
	GetNodes Instantiate) $(call both,cudaGraphLaunch cudaStreamBeginCapture cudaStreamEndCapture cudaStreamIsCapturing \
	cudaLaunchHostFunc,_ptsz)
ABSENT_8.0 := $(ABSENT_9.0)

# Numbers of HIP: the one that hipRuntimeGetVersion says, and the first version node that the release does not have.
HIP_VERSIONS := 5 6 7
HIP_NUMBER_5 := 50700000
HIP_NUMBER_6 := 60400000
HIP_NUMBER_7 := 70100000
HIP_LATER_5 := hip_6.0
HIP_LATER_6 := hip_6.5
HIP_LATER_7 := none

# $1: version script, $2: what to link. Everything goes in, and all but the API is hidden.
# -Bsymbolic: what the library hands out or calls is its own, whatever is preloaded.
# nodelete: its threads and thread-local data outlive dlclose.
link = $(CC) -shared -o $@ -Wl,-soname,$(notdir $@) -Wl,--version-script=$1 -Wl,-Bsymbolic -Wl,-z,nodelete \
	-Wl,--gc-sections -Wl,--whole-archive $2 -Wl,--no-whole-archive -ldl -lpthread -lm $(UNWIND)

.DELETE_ON_ERROR:
.PHONY: all shared
all: shared $(LIB)/libcudart_static.a
shared: $(LIB)/libcuda.so.1 $(LIB)/libnvidia-ml.so.1 $(VERSIONS:%=$(LIB)/libcudart.so.%) $(HIP_VERSIONS:%=$(LIB)/libamdhip64.so.%)

$(LIB) $(OBJ):
	mkdir -p $@

$(OBJ)/cuda.map: sim/link.mk | $(OBJ)
	echo '{ global: cu*; p2psim_*; local: *; };' >$@

$(LIB)/libcuda.so.1: $(CUDA) $(OBJ)/cuda.map | $(LIB)
	$(call link,$(OBJ)/cuda.map,$<)
	ln -sf $(notdir $@) $(LIB)/libcuda.so

$(LIB)/libnvidia-ml.so.1: sim/nvml/nvml.c sim/link.mk | $(LIB)
	$(CC) -shared -fPIC -O2 -Wall -Wextra -Werror -o $@ $< -Wl,-soname,$(notdir $@)

# Exact names win over patterns.
$(VERSIONS:%=$(OBJ)/cudart.%.map): $(OBJ)/cudart.%.map: sim/link.mk | $(OBJ)
	echo 'libcudart.so.$* { global: cuda*; __cuda*; local: $(ABSENT_$*) *; };' >$@

# The one thing that tells the versions apart at run time.
$(VERSIONS:%=$(OBJ)/version.%.o): $(OBJ)/version.%.o: sim/link.mk | $(OBJ)
	echo 'const int p2psim_cudart_version = $(NUMBER_$*);' | $(CC) -fPIC -x c -c - -o $@

$(VERSIONS:%=$(LIB)/libcudart.so.%): $(LIB)/libcudart.so.%: $(CUDART) $(OBJ)/cudart.%.map $(OBJ)/version.%.o | $(LIB)
	$(call link,$(OBJ)/cudart.$*.map,$(CUDART) $(OBJ)/version.$*.o)
	mkdir -p $(LIB)/$*
	ln -sf ../$(notdir $@) $(LIB)/$*/libcudart.so

# One object with nothing global but the API, so that it fits into programs that have Rust parts of their own.
$(LIB)/libcudart_static.a: $(CUDART) $(OBJ)/version.13.o | $(LIB)
	$(LD) -r -u cudaMemcpyPeer -o $(OBJ)/cudart.o $(OBJ)/version.13.o $(CUDART)
	objcopy --wildcard --keep-global-symbol='cuda*' --keep-global-symbol='__cuda*' $(OBJ)/cudart.o
	rm -f $@
	$(AR) rcs $@ $(OBJ)/cudart.o

# Nodes come in the order of releases. Whatever node comes first, p2psim has what only the simulation exports.
$(HIP_VERSIONS:%=$(OBJ)/hip.%.map): $(OBJ)/hip.%.map: sim/hip/exports.map sim/link.mk | $(OBJ)
	sed '/^$(HIP_LATER_$*) {/,$$d' $< >$@
	echo 'p2psim { global: p2psim_hip_copies; p2psim_hip_reaches; };' >>$@

$(HIP_VERSIONS:%=$(OBJ)/hip.%.o): $(OBJ)/hip.%.o: sim/link.mk | $(OBJ)
	echo 'const int p2psim_hip_version = $(HIP_NUMBER_$*);' | $(CC) -fPIC -x c -c - -o $@

$(HIP_VERSIONS:%=$(LIB)/libamdhip64.so.%): $(LIB)/libamdhip64.so.%: $(HIP) $(OBJ)/hip.%.map $(OBJ)/hip.%.o | $(LIB)
	$(call link,$(OBJ)/hip.$*.map,$(HIP) $(OBJ)/hip.$*.o)
	mkdir -p $(LIB)/$*
	ln -sf ../$(notdir $@) $(LIB)/$*/libamdhip64.so
	$(if $(filter 6,$*),ln -sf $(notdir $@) $(LIB)/libamdhip64.so)
