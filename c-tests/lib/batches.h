/*
 * The driver's batches of copies. Include after cuda.h and check.h. What they take is the same for both APIs in all releases, and in the
 * headers only since 12.8; there they are renamed from release to release, so they are found by name.
 */
#ifndef P2PSHIM_C_TESTS_BATCHES_H
#define P2PSHIM_C_TESTS_BATCHES_H

enum { IN_ORDER = 1, DURING_CALL = 2, ANY_ORDER = 3 };

struct location {
    int type, id;
};

struct attributes {
    int order;
    struct location src, dst;
    unsigned flags;
};

struct operand {
    int type;
    CUdeviceptr at;
    size_t row, layer;
    struct location hint;
};

struct operation {
    struct operand src, dst;
    size_t width, height, depth;
    int order;
    unsigned flags;
};

/* NULL where the driver has none. */
static struct {
    CUresult (*linear)(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, struct attributes *, size_t *, size_t, size_t *, CUstream);
    CUresult (*linear_2)(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, struct attributes *, size_t *, size_t, CUstream);
    CUresult (*linear_2_per_thread)(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, struct attributes *, size_t *, size_t, CUstream);
    CUresult (*boxes)(size_t, struct operation *, size_t *, unsigned long long, CUstream);
    CUresult (*boxes_2)(size_t, struct operation *, unsigned long long, CUstream);
} batches;

/* A function of the driver, if it has it: `to` is a pointer to a function pointer. */
static inline void find_function(const char *name, void *to)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    memcpy(to, &found, sizeof found);
}

static inline void find_batches(void)
{
    find_function("cuMemcpyBatchAsync", &batches.linear);
    find_function("cuMemcpyBatchAsync_v2", &batches.linear_2);
    find_function("cuMemcpyBatchAsync_v2_ptsz", &batches.linear_2_per_thread);
    find_function("cuMemcpy3DBatchAsync", &batches.boxes);
    find_function("cuMemcpy3DBatchAsync_v2", &batches.boxes_2);
}

#endif
