/*
 * Batches of copies by the runtime, in the order of the stream. Include after cuda_runtime_api.h and check.h.
 */
#ifndef P2PSHIM_C_TESTS_RUNTIME_BATCHES_H
#define P2PSHIM_C_TESTS_RUNTIME_BATCHES_H

#if CUDART_VERSION >= 12080
static inline cudaError_t copy_batch(void **dsts, void **srcs, size_t *sizes, size_t count, cudaStream_t stream)
{
    struct cudaMemcpyAttributes attributes = {.srcAccessOrder = cudaMemcpySrcAccessOrderStream};
    size_t first = 0;
#if CUDART_VERSION >= 13000
    return cudaMemcpyBatchAsync((void *const *)dsts, (const void *const *)srcs, sizes, count, &attributes, &first, 1, stream);
#else
    size_t failed;
    return cudaMemcpyBatchAsync(dsts, srcs, sizes, count, &attributes, &first, 1, &failed, stream);
#endif
}
#endif

/* A copy as a batch of so many parts; at once where the runtime has no batches. */
static inline cudaError_t copy_in_parts(char *dst, char *src, size_t bytes, size_t parts, cudaStream_t stream)
{
#if CUDART_VERSION >= 12080
    enum { MOST = 4 };
    void *dsts[MOST], *srcs[MOST];
    size_t sizes[MOST], part = bytes / parts;
    REQUIRE(parts <= MOST);
    for (size_t i = 0; i < parts; i++) {
        dsts[i] = dst + i * part;
        srcs[i] = src + i * part;
        sizes[i] = i + 1 < parts ? part : bytes - i * part;
    }
    return copy_batch(dsts, srcs, sizes, parts, stream);
#else
    (void)parts;
    return cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream);
#endif
}

#endif
