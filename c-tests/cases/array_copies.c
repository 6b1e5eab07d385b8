/* build: driver; run: array_copies between|elsewhere|remade|unseen LIBRARY|timed [enables] on sim gpu
 * Copies from and to CUDA arrays, by every function of the driver that takes them. The program never enables peer access.
 * Exits with 0 only if all bytes arrive.
 *
 *   between     2 MiB from device 0 to device 1, once by each function and pair of memory and array
 *   elsewhere   the same on one device, and with the host
 *   remade      an array of device 1 in place of one of device 0 that was destroyed, many times
 *   unseen LIB  to an array that LIB made on device 1, past any preload; then to one that it made on device 0
 *   timed       GB/s of each form; with "enables" behind it access is enabled first
 */
#include <cuda.h>

#include "check.h"
#include "gpu/measure.h"

enum { TEXEL = 16, WIDTH = 512, ROWS = 256, PITCH = WIDTH * TEXEL, COUNT = PITCH * ROWS };

CUresult cuMemcpyDtoA_v2_ptds(CUarray, size_t, CUdeviceptr, size_t);
CUresult cuMemcpyAtoD_v2_ptds(CUdeviceptr, CUarray, size_t, size_t);
CUresult cuMemcpyAtoA_v2_ptds(CUarray, size_t, CUarray, size_t, size_t);

/* On a device: memory, an array of one dimension, one of two and one of three, each of COUNT bytes. */
struct side {
    CUcontext context;
    CUdeviceptr memory;
    CUarray line, flat, deep;
};

static struct side on[2];
static CUstream stream;
static unsigned char sent[COUNT], received[COUNT];

enum form { TO_LINE, TO_LINE_PTDS, FROM_LINE, FROM_LINE_PTDS, LINES, LINES_PTDS, TO_2D, FROM_2D_UNALIGNED, BOTH_2D_ASYNC, TO_3D,
            FROM_3D_ASYNC, BOTH_3D, FORMS };

static void make(struct side *side, int device)
{
    CUDA_ARRAY_DESCRIPTOR flat = {.Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    CUDA_ARRAY3D_DESCRIPTOR deep = {.Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    side->memory = context_memory(&side->context, device, COUNT);
    flat.Width = COUNT / TEXEL;
    CHECK_CU(cuArrayCreate(&side->line, &flat));
    flat.Width = WIDTH, flat.Height = ROWS;
    CHECK_CU(cuArrayCreate(&side->flat, &flat));
    deep.Width = WIDTH, deep.Height = ROWS / 4, deep.Depth = 4;
    CHECK_CU(cuArray3DCreate(&side->deep, &deep));
}

/* What a copy of a form goes from, or to. */
static CUarray array_of(const struct side *side, enum form form, int is_source)
{
    switch (form) {
    case TO_LINE: case TO_LINE_PTDS: return is_source ? NULL : side->line;
    case FROM_LINE: case FROM_LINE_PTDS: return is_source ? side->line : NULL;
    case LINES: case LINES_PTDS: return side->line;
    case TO_2D: return is_source ? NULL : side->flat;
    case FROM_2D_UNALIGNED: return is_source ? side->flat : NULL;
    case BOTH_2D_ASYNC: return side->flat;
    case TO_3D: return is_source ? NULL : side->deep;
    case FROM_3D_ASYNC: return is_source ? side->deep : NULL;
    default: return side->deep;
    }
}

static CUDA_MEMCPY3D box(CUdeviceptr to, CUarray to_array, CUdeviceptr from, CUarray from_array, int slices)
{
    CUDA_MEMCPY3D p = {.srcMemoryType = from_array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED,
                       .dstMemoryType = to_array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED};
    p.srcArray = from_array, p.srcDevice = from, p.dstArray = to_array, p.dstDevice = to;
    p.srcPitch = p.dstPitch = p.WidthInBytes = PITCH;
    p.srcHeight = p.dstHeight = p.Height = ROWS / slices;
    p.Depth = slices;
    return p;
}

static CUDA_MEMCPY2D rows(CUdeviceptr to, CUarray to_array, CUdeviceptr from, CUarray from_array)
{
    CUDA_MEMCPY3D p = box(to, to_array, from, from_array, 1);
    return (CUDA_MEMCPY2D){.srcMemoryType = p.srcMemoryType, .srcDevice = from, .srcArray = from_array, .srcPitch = PITCH,
                           .dstMemoryType = p.dstMemoryType, .dstDevice = to, .dstArray = to_array, .dstPitch = PITCH,
                           .WidthInBytes = PITCH, .Height = ROWS};
}

static CUresult copy(enum form form, const struct side *to, const struct side *from)
{
    CUarray to_array = array_of(to, form, 0), from_array = array_of(from, form, 1);
    CUDA_MEMCPY2D flat = rows(to->memory, to_array, from->memory, from_array);
    CUDA_MEMCPY3D deep = box(to->memory, to_array, from->memory, from_array, 4);
    switch (form) {
    case TO_LINE: return cuMemcpyDtoA(to_array, 0, from->memory, COUNT);
    case TO_LINE_PTDS: return cuMemcpyDtoA_v2_ptds(to_array, 0, from->memory, COUNT);
    case FROM_LINE: return cuMemcpyAtoD(to->memory, from_array, 0, COUNT);
    case FROM_LINE_PTDS: return cuMemcpyAtoD_v2_ptds(to->memory, from_array, 0, COUNT);
    case LINES: return cuMemcpyAtoA(to_array, 0, from_array, 0, COUNT);
    case LINES_PTDS: return cuMemcpyAtoA_v2_ptds(to_array, 0, from_array, 0, COUNT);
    case TO_2D: return cuMemcpy2D(&flat);
    case FROM_2D_UNALIGNED: return cuMemcpy2DUnaligned(&flat);
    case BOTH_2D_ASYNC: return cuMemcpy2DAsync(&flat, stream);
    case FROM_3D_ASYNC: return cuMemcpy3DAsync(&deep, stream);
    default: return cuMemcpy3D(&deep);
    }
}

static void settle(void)
{
    for (int device = 1; device >= 0; device--) {
        CHECK_CU(cuCtxSetCurrent(on[device].context));
        CHECK_CU(cuCtxSynchronize());
    }
}

/* Copies between an end of a copy and the host. */
static void host_copy(const struct side *side, CUarray array, unsigned char *host, int is_upload)
{
    CUDA_MEMCPY3D p = box(side->memory, array, side->memory, array, array == side->deep ? 4 : 1);
    if (array == NULL || array == side->line)
        p.WidthInBytes = p.srcPitch = p.dstPitch = COUNT, p.Height = 1;
    if (is_upload)
        p.srcMemoryType = CU_MEMORYTYPE_HOST, p.srcHost = host;
    else
        p.dstMemoryType = CU_MEMORYTYPE_HOST, p.dstHost = host;
    CHECK_CU(cuMemcpy3D(&p));
}

static void move(enum form form, const struct side *to, const struct side *from)
{
    static unsigned seed;
    fill(sent, COUNT, ++seed);
    memset(received, 0, COUNT);
    host_copy(to, array_of(to, form, 0), received, 1);
    host_copy(from, array_of(from, form, 1), sent, 1);
    settle();
    CHECK_CU(copy(form, to, from));
    settle();
    host_copy(to, array_of(to, form, 0), received, 0);
    REQUIRE(memcmp(sent, received, COUNT) == 0);
}

static void remade(void)
{
    CUDA_ARRAY_DESCRIPTOR flat = {.Width = PITCH / TEXEL, .Height = ROWS, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    for (int i = 0; i < 100; i++) {
        CUarray array;
        CHECK_CU(cuCtxSetCurrent(on[i % 2].context));
        CHECK_CU(cuArrayCreate(&array, &flat));
        CHECK_CU(cuCtxSetCurrent(on[0].context));
        CUDA_MEMCPY2D p = rows(0, array, on[0].memory, NULL);
        CHECK_CU(cuMemcpy2D(&p));
        settle();
        CHECK_CU(cuArrayDestroy(array));
    }
}

static void unseen(const char *library)
{
    CUDA_ARRAY_DESCRIPTOR flat = {.Width = PITCH / TEXEL, .Height = ROWS, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    void *opened = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    REQUIRE(opened);
    CUresult (*make_array)(CUarray *, const CUDA_ARRAY_DESCRIPTOR *) =
        (CUresult (*)(CUarray *, const CUDA_ARRAY_DESCRIPTOR *))dlsym(opened, "make_array");
    REQUIRE(make_array);
    for (int device = 1; device >= 0; device--) {
        CHECK_CU(cuCtxSetCurrent(on[device].context));
        CHECK_CU(cuArrayDestroy(on[device].flat));
        CHECK_CU(make_array(&on[device].flat, &flat));
        move(TO_2D, &on[device], &on[0]);
    }
}

static void timed(int enables)
{
    static const char *const names[] = {"cuMemcpyDtoA", "cuMemcpyDtoA_ptds", "cuMemcpyAtoD", "cuMemcpyAtoD_ptds", "cuMemcpyAtoA",
        "cuMemcpyAtoA_ptds", "cuMemcpy2D to", "cuMemcpy2DUnaligned from", "cuMemcpy2DAsync both", "cuMemcpy3D to",
        "cuMemcpy3DAsync from", "cuMemcpy3D both"};
    for (int device = 0; enables && device < 2; device++) {
        CHECK_CU(cuCtxSetCurrent(on[device].context));
        CHECK_CU(cuCtxEnablePeerAccess(on[1 - device].context, 0));
    }
    for (enum form form = 0; form < FORMS; form++) {
        double each[15];
        for (int i = 0; i < 15; i++) {
            settle();
            double since = host_time();
            for (int j = 0; j < 8; j++)
                CHECK_CU(copy(form, &on[1], &on[0]));
            settle();
            each[i] = (host_time() - since) / 8;
        }
        printf("%s\t%.2f\n", names[form], COUNT * 1e-3 / median(each, 15));
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    CHECK_CU(cuInit(0));
    make(&on[1], 1);
    make(&on[0], 0);
    CHECK_CU(cuStreamCreate(&stream, 0));
    if (strcmp(what, "remade") == 0)
        remade();
    else if (strcmp(what, "unseen") == 0 && argc > 2)
        unseen(argv[2]);
    else if (strcmp(what, "timed") == 0)
        timed(argc > 2);
    else
        for (enum form form = 0; form < FORMS; form++)
            move(form, strcmp(what, "between") == 0 ? &on[1] : &on[0], &on[0]);
    return 0;
}
