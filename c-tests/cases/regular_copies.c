/* build: runtime old; run: regular_copies between|elsewhere|past|reused on sim
 * Copies by the functions that name no devices: between two devices, inside one, and with the host. The program never
 * enables peer access. Exits with 0 only if all bytes arrive.
 *
 *   between     2 MiB from device 0 to device 1, once by each function, and then nothing
 *   elsewhere   copies that are not between devices, by each function
 *   past        copies of more than there is, by each function
 *   reused      2,000 copies, and as many to the host beside them, to memory at an address that was no memory when it was first copied to
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { PITCH = 4096, ROWS = 512, COUNT = PITCH * ROWS };

/* In every runtime; programs that are compiled for a default stream per thread call them. */
cudaError_t cudaMemcpy_ptds(void *, const void *, size_t, enum cudaMemcpyKind);
cudaError_t cudaMemcpyAsync_ptsz(void *, const void *, size_t, enum cudaMemcpyKind, cudaStream_t);
cudaError_t cudaMemcpy2D_ptds(void *, size_t, const void *, size_t, size_t, size_t, enum cudaMemcpyKind);
cudaError_t cudaMemcpy2DAsync_ptsz(void *, size_t, const void *, size_t, size_t, size_t, enum cudaMemcpyKind,
                                   cudaStream_t);
cudaError_t cudaMemcpy3D_ptds(const struct cudaMemcpy3DParms *);
cudaError_t cudaMemcpy3DAsync_ptsz(const struct cudaMemcpy3DParms *, cudaStream_t);

static unsigned char sent[COUNT], received[COUNT];

enum form { LINEAR, LINEAR_ASYNC, BOX_2D, BOX_2D_ASYNC, BOX_3D, BOX_3D_ASYNC, FORMS };

static struct cudaMemcpy3DParms box(void *dst, void *src, enum cudaMemcpyKind kind)
{
    struct cudaMemcpy3DParms p = {.kind = kind};
    p.srcPtr.ptr = src;
    p.dstPtr.ptr = dst;
    p.srcPtr.pitch = p.dstPtr.pitch = p.srcPtr.xsize = p.dstPtr.xsize = p.extent.width = PITCH;
    p.srcPtr.ysize = p.dstPtr.ysize = p.extent.height = ROWS / 4;
    p.extent.depth = 4;
    return p;
}

static cudaError_t copy(enum form form, bool per_thread, void *dst, void *src, enum cudaMemcpyKind kind,
                        cudaStream_t stream)
{
    struct cudaMemcpy3DParms p = box(dst, src, kind);
    switch (form) {
    case LINEAR:
        return per_thread ? cudaMemcpy_ptds(dst, src, COUNT, kind) : cudaMemcpy(dst, src, COUNT, kind);
    case LINEAR_ASYNC:
        return per_thread ? cudaMemcpyAsync_ptsz(dst, src, COUNT, kind, stream)
                          : cudaMemcpyAsync(dst, src, COUNT, kind, stream);
    case BOX_2D:
        return per_thread ? cudaMemcpy2D_ptds(dst, PITCH, src, PITCH, PITCH, ROWS, kind)
                          : cudaMemcpy2D(dst, PITCH, src, PITCH, PITCH, ROWS, kind);
    case BOX_2D_ASYNC:
        return per_thread ? cudaMemcpy2DAsync_ptsz(dst, PITCH, src, PITCH, PITCH, ROWS, kind, stream)
                          : cudaMemcpy2DAsync(dst, PITCH, src, PITCH, PITCH, ROWS, kind, stream);
    case BOX_3D:
        return per_thread ? cudaMemcpy3D_ptds(&p) : cudaMemcpy3D(&p);
    default:
        return per_thread ? cudaMemcpy3DAsync_ptsz(&p, stream) : cudaMemcpy3DAsync(&p, stream);
    }
}

static void *allocate(int device)
{
    void *memory;
    memory = device_memory(device, COUNT);
    return memory;
}

/* Fills one end, copies, and compares the other. Fewer bytes would show, since both ends are filled anew each time. */
static void move(enum form form, bool per_thread, void *dst, void *src, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    static unsigned seed;
    fill(sent, COUNT, ++seed);
    memset(received, 0, COUNT);
    CHECK(cudaMemcpy(dst, received, COUNT, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(src, sent, COUNT, cudaMemcpyHostToDevice));
    CHECK(copy(form, per_thread, dst, src, kind, stream));
    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaSetDevice(0));
    CHECK(cudaMemcpy(received, dst, COUNT, cudaMemcpyDeviceToHost));
    REQUIRE(memcmp(sent, received, COUNT) == 0);
}

static void between(void)
{
    void *on_gpu1 = allocate(1), *on_gpu0 = allocate(0);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    for (enum form form = 0; form < FORMS; form++)
        for (int per_thread = 0; per_thread < 2; per_thread++)
            move(form, per_thread, on_gpu1, on_gpu0, form % 2 ? cudaMemcpyDefault : cudaMemcpyDeviceToDevice, stream);
    CHECK(cudaMemcpyAsync(on_gpu1, on_gpu0, 0, cudaMemcpyDefault, stream));
    CHECK(cudaMemcpy(on_gpu1, on_gpu0, 0, cudaMemcpyDeviceToDevice));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(on_gpu0));
    CHECK(cudaFree(on_gpu1));
}

static void elsewhere(void)
{
    void *far = allocate(1), *here = allocate(0), *there = allocate(0), *pinned;
    CHECK(cudaMallocHost(&pinned, COUNT));
    void *others[] = {there, pinned, sent, received};
    for (enum form form = 0; form < FORMS; form++)
        for (int per_thread = 0; per_thread < 2; per_thread++)
            for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
                CHECK(copy(form, per_thread, here, others[i], cudaMemcpyDefault, NULL));
                CHECK(copy(form, per_thread, others[i], here, cudaMemcpyDefault, NULL));
                CHECK(cudaDeviceSynchronize());
            }
    CHECK(copy(LINEAR, false, here, there, cudaMemcpyDeviceToDevice, NULL));
    CHECK(cudaMemcpyAsync(here, there, 0, cudaMemcpyDefault, NULL));
    CHECK(cudaMemcpyAsync(far, here, 0, cudaMemcpyDefault, NULL));
    CHECK(cudaMemcpy(far, here, 0, cudaMemcpyDeviceToDevice));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(far));
    CHECK(cudaFree(here));
    CHECK(cudaFree(there));
}

static void reused(void)
{
    void *there = allocate(1), *before = there, *here = allocate(0);
    CHECK(cudaFree(there));
    REQUIRE(cudaMemcpyAsync(there, here, COUNT, cudaMemcpyDeviceToDevice, NULL) != cudaSuccess);
    cudaGetLastError();
    there = allocate(1);
    REQUIRE(there == before);
    CHECK(cudaSetDevice(0));
    for (int i = 0; i < 2000; i++) {
        CHECK(cudaMemcpyAsync(there, here, 4096, cudaMemcpyDeviceToDevice, NULL));
        CHECK(cudaMemcpyAsync(received, here, 64, cudaMemcpyDefault, NULL));
    }
    CHECK(cudaDeviceSynchronize());
}

/* 1 without the shim, whatever the function; nothing is copied. */
static void past(void)
{
    void *there = allocate(1), *here = allocate(0);
    size_t much = (size_t)COUNT * 64;
    enum cudaMemcpyKind kinds[] = {cudaMemcpyDeviceToDevice, cudaMemcpyDefault};
    cudaMemcpy(there, here, 4096, cudaMemcpyDefault);
    for (int i = 0; i < 2; i++) {
        printf("%d", (int)cudaMemcpy(there, here, much, kinds[i]));
        printf(" %d", (int)cudaMemcpyAsync(there, here, much, kinds[i], NULL));
        printf(" %d", (int)cudaMemcpy2D(there, PITCH, here, PITCH, PITCH, ROWS * 64, kinds[i]));
        printf(" %d", (int)cudaMemcpy2DAsync(there, PITCH, here, PITCH, PITCH, ROWS * 64, kinds[i], NULL));
        printf(" %d", (int)cudaMemcpy2D(there, 512, here, PITCH, PITCH, ROWS, kinds[i]));
        printf(" last %d\n", (int)cudaGetLastError());
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "past") == 0) {
        past();
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "reused") == 0)
        reused();
    else if (argc > 1 && strcmp(argv[1], "between") == 0)
        between();
    else
        elsewhere();
    return 0;
}
