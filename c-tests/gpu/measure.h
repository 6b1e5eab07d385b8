/* What the measuring programs share: the host's clock, medians, and patterns in device memory. Include after check.h. */
#ifndef P2PSHIM_C_TESTS_MEASURE_H
#define P2PSHIM_C_TESTS_MEASURE_H

#define MIB ((size_t)1 << 20)

/* Microseconds. */
static inline double host_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static inline int by_value(const void *left, const void *right)
{
    double l = *(const double *)left, r = *(const double *)right;
    return (l > r) - (l < r);
}

/* Sorts the values. */
static inline double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 2];
}

#ifdef __CUDA_RUNTIME_API_H__
/* Fills memory of the current device with a pattern of MIB bytes, over and over; `size` is a multiple of MIB. */
static inline void fill_device(void *memory, size_t size, unsigned seed)
{
    static unsigned char pattern[(size_t)1 << 20];
    fill(pattern, MIB, seed);
    for (size_t at = 0; at < size; at += MIB)
        CHECK(cudaMemcpy((char *)memory + at, pattern, MIB, cudaMemcpyHostToDevice));
}

/* Whether memory of the current device holds that pattern in all its MIB blocks. */
static inline int holds(const void *memory, size_t size, unsigned seed)
{
    static unsigned char pattern[(size_t)1 << 20], found[(size_t)1 << 20];
    fill(pattern, MIB, seed);
    for (size_t at = 0; at < size; at += MIB) {
        CHECK(cudaMemcpy(found, (const char *)memory + at, MIB, cudaMemcpyDeviceToHost));
        if (memcmp(pattern, found, MIB) != 0)
            return 0;
    }
    return 1;
}
#endif

#endif
