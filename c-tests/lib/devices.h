/*
 * Devices, by their primary contexts, and memory on them. Include after cuda.h, cuda_runtime_api.h and check.h; MOST_DEVICES is
 * defined before if it is not 4.
 */
#ifndef P2PSHIM_C_TESTS_DEVICES_H
#define P2PSHIM_C_TESTS_DEVICES_H

#include "mappings.h"

#ifndef MOST_DEVICES
#define MOST_DEVICES 4
#endif

static int devices; /* that the program uses */
static CUcontext contexts[MOST_DEVICES];

static inline void count_devices(int most)
{
    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGetCount(&devices));
    devices = devices < most ? devices : most;
}

static inline void find_context(int device)
{
    CHECK(cudaSetDevice(device));
    CHECK(cudaFree(NULL));
    CHECK_CU(cuCtxGetCurrent(&contexts[device]));
}

static inline void find_contexts(void)
{
    for (int device = 0; device < devices; device++)
        find_context(device);
}

static inline int make_current(int device)
{
    CHECK_CU(cuCtxSetCurrent(contexts[device]));
    return device;
}

static inline void enter(CUcontext context)
{
    CHECK_CU(cuCtxPushCurrent(context));
}

static inline void leave(void)
{
    CUcontext gone;
    CHECK_CU(cuCtxPopCurrent(&gone));
}

static inline void synchronize(CUcontext context)
{
    enter(context);
    CHECK_CU(cuCtxSynchronize());
    leave();
}

static inline void synchronize_all(void)
{
    for (int device = 0; device < devices; device++)
        synchronize(contexts[device]);
}

static inline CUstream new_stream(int device, unsigned flags)
{
    CUstream stream;
    enter(contexts[device]);
    CHECK_CU(cuStreamCreate(&stream, flags));
    leave();
    return stream;
}

/* From or to memory on a device, of any kind, or of the host, if the device is -1. A context of another device may have no access to it. */
static inline void read_memory(int device, void *to, CUdeviceptr from, size_t bytes)
{
    if (device < 0) {
        memcpy(to, (void *)from, bytes);
        return;
    }
    enter(contexts[device]);
    CHECK_CU(cuMemcpyDtoH(to, from, bytes));
    leave();
}

static inline void write_memory(int device, CUdeviceptr to, const void *from, size_t bytes)
{
    if (device < 0) {
        memcpy((void *)to, from, bytes);
        return;
    }
    enter(contexts[device]);
    CHECK_CU(cuMemcpyHtoD(to, from, bytes));
    leave();
}

#endif
