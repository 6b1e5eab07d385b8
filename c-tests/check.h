/*
 * What the test programs share, with the headers of the C library that most of them need. Include after cuda_runtime_api.h and/or cuda.h.
 *
 *   CHECK(call)      a runtime call that must succeed; otherwise says where and why and exits with 1
 *   CHECK_CU(call)   the same for a driver call
 *   REQUIRE(cond)    any other condition
 *   SHOW(call)       prints "call = cudaErrorName", success or not
 *   SHOW_CU(call)    the same for a driver call
 *   device_memory(device, bytes), context_memory(&context, device, bytes)    memory, by the runtime or the driver
 *   non_blocking_stream(), driver_stream()    a stream of the current device, by the runtime or the driver
 *   simulated_copies(from, to, &direct, &staged)    copies that the driver has made, if it is a simulated one
 *   run_in_thread(work, argument)    what a thread returns
 *   sleep_for(milliseconds)
 *   FIND_CASE(cases, name)    the row of a table of NAMED(function) or {"name", function}
 *   has_word(argc, argv, word)    whether it is among the arguments
 *
 * Programs print no pointers and no times, so that a plain and a preloaded run can be compared.
 *
 * OLD_RUNTIME is defined for the runtimes before 11.0. What has another form there gets it, memory of a pool is like other memory, and
 * what 8.0 or a later one lacks is referred to weakly: nothing may call it there.
 */
#ifndef P2PSHIM_C_TESTS_CHECK_H
#define P2PSHIM_C_TESTS_CHECK_H

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#ifndef __cplusplus
#include <stdatomic.h>
#endif
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define REQUIRE(cond) ((cond) ? (void)0 : check_failed(__FILE__, __LINE__, #cond, "is false"))

static inline void check_failed(const char *file, int line, const char *what, const char *why)
{
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, what, why);
    exit(1);
}

#ifdef __CUDA_RUNTIME_API_H__
#define CHECK(call) check_runtime(__FILE__, __LINE__, #call, (call))
#define SHOW(call) show_runtime(#call, (call))

static inline void check_runtime(const char *file, int line, const char *call, cudaError_t error)
{
    if (error != cudaSuccess)
        check_failed(file, line, call, cudaGetErrorName(error));
}

static inline cudaError_t show_runtime(const char *call, cudaError_t error)
{
    printf("%s = %s\n", call, cudaGetErrorName(error));
    return error;
}

/* Memory on a device, which is current from now on. */
static inline void *device_memory(int device, size_t bytes)
{
    void *memory;
    CHECK(cudaSetDevice(device));
    CHECK(cudaMalloc(&memory, bytes));
    return memory;
}

static inline cudaStream_t non_blocking_stream(void)
{
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}
#endif

#if defined OLD_RUNTIME && defined __CUDA_RUNTIME_API_H__
#define cudaGraphInstantiateWithFlags(exec, graph, flags) cudaGraphInstantiate(exec, graph, NULL, NULL, flags)
#define cudaMallocAsync(memory, bytes, stream) ((void)(stream), cudaMalloc(memory, bytes))
#define cudaFreeAsync(memory, stream) ((void)(stream), cudaFree(memory))
#define cudaMemPoolSetAccess(pool, access, count) \
    ((cudaError_t)cuMemPoolSetAccess((CUmemoryPool)(pool), (CUmemAccessDesc *)(access), count))
#pragma weak cudaGraphAddMemcpyNode1D
#pragma weak cudaGraphCreate
#pragma weak cudaGraphDestroy
#pragma weak cudaGraphExecDestroy
#pragma weak cudaGraphInstantiate
#pragma weak cudaGraphLaunch
#pragma weak cudaLaunchHostFunc
#pragma weak cudaStreamBeginCapture
#pragma weak cudaStreamEndCapture
#endif

#ifdef __cuda_cuda_h__
#ifndef __cplusplus
/* This form is in all drivers; the headers of some releases hide or rename it. */
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *, unsigned int, CUdevice);
#endif

#define CHECK_CU(call) check_driver(__FILE__, __LINE__, #call, (call))
#define SHOW_CU(call) show_driver(#call, (call))

static inline const char *driver_error_name(CUresult error)
{
    const char *name = NULL;
    return cuGetErrorName(error, &name) == CUDA_SUCCESS && name ? name : "(no such CUresult)";
}

static inline void check_driver(const char *file, int line, const char *call, CUresult error)
{
    if (error != CUDA_SUCCESS)
        check_failed(file, line, call, driver_error_name(error));
}

static inline CUresult show_driver(const char *call, CUresult error)
{
    printf("%s = %s\n", call, driver_error_name(error));
    return error;
}

/* A device's primary context, which is current from now on. */
static inline CUcontext primary_context(int device)
{
    CUcontext context;
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_CU(cuCtxSetCurrent(context));
    return context;
}

/* Memory in a device's primary context, which is current from now on. */
static inline CUdeviceptr context_memory(CUcontext *context, int device, size_t bytes)
{
    CUdeviceptr memory;
    *context = primary_context(device);
    CHECK_CU(cuMemAlloc(&memory, bytes));
    return memory;
}

static inline CUstream driver_stream(void)
{
    CUstream stream;
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}
#endif

/* A runtime does not show the driver's functions to others. */
static inline bool simulated_copies(int from, int to, unsigned long long *direct, unsigned long long *staged)
{
    int (*count)(int, int, unsigned long long *, unsigned long long *);
    *(void **)&count = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "p2psim_copies");
    return count && count(from, to, direct, staged) == 0;
}

static inline void *run_in_thread(void *(*work)(void *), void *argument)
{
    pthread_t thread;
    void *returned;
    REQUIRE(pthread_create(&thread, NULL, work, argument) == 0 && pthread_join(thread, &returned) == 0);
    return returned;
}

static inline void sleep_for(int milliseconds)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

/* A row of a table of what a program can do. */
struct named_case {
    const char *name;
    void (*run)(void);
};

#define NAMED(name) {#name, name}
#define FIND_CASE(cases, name) find_case(cases, sizeof(cases) / sizeof *(cases), name)

/* NULL if there is none of that name. */
static inline const struct named_case *find_case(const struct named_case *cases, size_t count, const char *name)
{
    for (const struct named_case *row = cases; row < cases + count; row++)
        if (strcmp(row->name, name) == 0)
            return row;
    return NULL;
}

static inline int has_word(int argc, char **argv, const char *word)
{
    int count = 0;
    for (int i = 1; i < argc; i++)
        count += strcmp(argv[i], word) == 0;
    return count > 0;
}

/* Bytes that differ from one seed, and one position, to the next. They repeat, but after no power of two, as copies of parts have. */
static inline void fill(void *bytes, size_t count, unsigned seed)
{
    enum { STEP = 251, PERIOD = STEP * 256 };
    unsigned char *all = (unsigned char *)bytes;
    for (size_t i = 0; i < count && i < PERIOD; i++)
        all[i] = (unsigned char)((i * 31 + seed * 97 + i / STEP) & 0xff);
    for (size_t done = PERIOD; done < count; done += PERIOD)
        memcpy(all + done, all, count - done < PERIOD ? count - done : (size_t)PERIOD);
}

/* How many bytes of one differ from those of the other, at once if none does. */
static inline size_t differences(const void *one, const void *other, size_t count)
{
    size_t wrong = 0;
    if (memcmp(one, other, count) == 0)
        return 0;
    for (size_t i = 0; i < count; i++)
        wrong += ((const unsigned char *)one)[i] != ((const unsigned char *)other)[i];
    return wrong;
}

/* How many bytes are not that value: each is compared with its neighbour. */
static inline size_t others_than(const void *bytes, size_t count, unsigned char value)
{
    const unsigned char *all = (unsigned char *)bytes;
    size_t wrong = 0;
    if (count == 0 || (*all == value && memcmp(all, all + 1, count - 1) == 0))
        return 0;
    for (size_t i = 0; i < count; i++)
        wrong += all[i] != value;
    return wrong;
}

/* FNV-1a, of words and then of bytes. */
static inline uint32_t checksum(const void *bytes, size_t count)
{
    const unsigned char *all = (unsigned char *)bytes;
    uint64_t sum = 0xcbf29ce484222325u, word;
    for (; count >= sizeof word; count -= sizeof word, all += sizeof word) {
        memcpy(&word, all, sizeof word);
        sum = (sum ^ word) * 0x100000001b3u;
    }
    for (; count > 0; count--)
        sum = (sum ^ *all++) * 0x100000001b3u;
    return (uint32_t)(sum ^ sum >> 32);
}

#endif
