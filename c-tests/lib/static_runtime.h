/* A stand-in for a runtime, with the names and the depth of NVIDIA's static one. static_runtime.c says more. */
#ifndef STATIC_RUNTIME_H
#define STATIC_RUNTIME_H

#include <stddef.h>

/* A copy of bytes between two devices of the simulated driver, whatever stream. */
int cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device, size_t count, void *stream);
int cudaMalloc(void **pointer, size_t bytes);
int cudaSetDevice(int device);

#endif
