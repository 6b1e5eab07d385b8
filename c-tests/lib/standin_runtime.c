/* build standin-runtime/libcudart.so.12: -fexceptions cudart12.map; run: by LD_LIBRARY_PATH
 * See standin_runtime.h. Compiled with -fexceptions: the action may unwind through here.
 */
#include <cuda_runtime_api.h>

#include "standin_runtime.h"

static void (*on_copy)(void);

void standin_on_copy(void (*action)(void))
{
    on_copy = action;
}

static int async_answer = cudaErrorNotReady; /* so that the two forms can be told apart */

void standin_async_answers(int code)
{
    async_answer = code;
}

static void act(void)
{
    if (on_copy)
        on_copy();
}

cudaError_t cudaMemcpyPeer(void *dst, int dst_device, const void *src, int src_device, size_t count)
{
    (void)dst, (void)dst_device, (void)src, (void)src_device, (void)count;
    act();
    return cudaSuccess;
}

cudaError_t cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device, size_t count,
                                cudaStream_t stream)
{
    (void)dst, (void)dst_device, (void)src, (void)src_device, (void)count, (void)stream;
    act();
    return (cudaError_t)async_answer;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaSuccess ? "cudaSuccess" : error == cudaErrorNotReady ? "cudaErrorNotReady" : "another";
}
