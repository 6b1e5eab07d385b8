/*
 * What the tests of the C interface share: its functions, linked or found at run time, and two devices of the driver, if there
 * is one.
 *
 *   API(name)(…)       calls p2pshim_name: by linking if LINKED is defined; else as the dynamic linker finds it, or in the
 *                      library that the variable SHIM names
 *   SAME(call, status) the call must answer that
 */
#ifndef P2PSHIM_C_TESTS_CAPI_H
#define P2PSHIM_C_TESTS_CAPI_H

#include <cuda.h>
#include <p2pshim.h>
#include <stdbool.h>
#include <string.h>

#include "../check.h"

#ifdef LINKED
#define API(name) p2pshim_##name
#else
#define API(name) ((__typeof__(&p2pshim_##name))found("p2pshim_" #name))
#endif
void *found(const char *name);

#define SAME(call, status) same(__FILE__, __LINE__, #call, (call), (status))
void same(const char *file, int line, const char *call, int is, int expected);

/* The functions of the driver that the tests call, as the program finds them with dlsym. */
#define DRIVER(X)                                                                                                       \
    X(cuInit, (unsigned))                                                                                               \
    X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                                                \
    X(cuCtxSetCurrent, (CUcontext))                                                                                     \
    X(cuCtxEnablePeerAccess, (CUcontext, unsigned))                                                                     \
    X(cuCtxSynchronize, (void))                                                                                         \
    X(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                                           \
    X(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t))                                                             \
    X(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))                                                                   \
    X(cuMemcpyPeer, (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t))                                           \
    X(cuMemcpyPeerAsync, (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream))                            \
    X(cuStreamCreate, (CUstream *, unsigned))                                                                           \
    X(cuStreamSynchronize, (CUstream))                                                                                  \
    X(cuStreamBeginCapture_v2, (CUstream, CUstreamCaptureMode))                                                         \
    X(cuStreamEndCapture, (CUstream, CUgraph *))                                                                        \
    X(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long))                                        \
    X(cuGraphLaunch, (CUgraphExec, CUstream))

#define DRIVER_FIELD(name, arguments) CUresult(*name) arguments;
struct driver {
    DRIVER(DRIVER_FIELD)
};

enum { BYTES = 1 << 16, ENOUGH = 40 }; /* so many copies are more than a pair needs to be worth enabling */

/* Two devices with a buffer on each; the first's context is current. */
struct gpus {
    struct driver cu;
    CUcontext contexts[2];
    CUdeviceptr buffers[2];
};

/* Whether calls of this program's reach the shim without its being asked: it is preloaded, or linked. */
bool is_in_front(void);
/* The devices; NULL if there is no driver. */
struct gpus *gpus(void);
/* Copies from the first buffer to the second, as a program that knows nothing of the shim: so many bytes, or all of them so many times. */
void copy(struct gpus *gpus, size_t bytes);
void copy_some(struct gpus *gpus, int times);
/* Fills the first buffer, and clears the second. */
void prepare(struct gpus *gpus, unsigned seed);
/* Whether the second buffer has what the first has. */
bool has_arrived(struct gpus *gpus, unsigned seed);

/* What the program is asked to do, and where it may write. */
struct task {
    const char *name;
    void (*run)(const char *folder);
};
extern const struct task numbers_task, settings_task, state_task, denied_task, vetoed_task, trace_task, events_task, runtime_events_task,
    late_task, findings_task, prepare_task, enabled_task, hip_task, threads_task, forked_task, off_task, repeated_copies_task, verdict_task;

#endif
