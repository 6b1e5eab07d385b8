/* build: driver; run: pool_rights_taken one|two|reset on sim
 * Copies to memory of a pool, to which the shim grants the other device access; then the program takes that right away, which
 * it has never given, while copies are under way. That must be as harmless as it is without the shim.
 *
 *   two      together with the right of a third device
 *   reset    after the reset of a third device, which the pool has nothing to do with
 */
#include <cuda.h>

#include "check.h"
#include "lib/mappings.h"

enum { DEVICES = 3, SIZE = 16 << 20, COPIES = 40 };

static CUcontext contexts[DEVICES];
static CUdeviceptr memory[DEVICES];

static void copy(void)
{
    for (int i = 0; i < COPIES; i++)
        CHECK_CU(cuMemcpyPeerAsync(memory[1], contexts[1], memory[0], contexts[0], SIZE, NULL));
}

static void show_right(CUmemoryPool pool)
{
    CUmemAccess_flags flags;
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CHECK_CU(cuMemPoolGetAccess(&flags, pool, &location));
    printf("flags %d\n", (int)flags);
}

int main(int argc, char **argv)
{
    CUmemoryPool pool;
    CUmemAccessDesc taken[] = {access_of(0, CU_MEM_ACCESS_FLAGS_PROT_NONE), access_of(2, CU_MEM_ACCESS_FLAGS_PROT_NONE)};
    REQUIRE(argc > 1);
    CHECK_CU(cuInit(0));
    for (int device = 0; device < DEVICES; device++) {
        contexts[device] = primary_context(device);
        CHECK_CU(cuMemAllocAsync(&memory[device], SIZE, NULL));
        CHECK_CU(cuStreamSynchronize(NULL));
    }
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    CHECK_CU(cuDeviceGetDefaultMemPool(&pool, 1));
    copy();
    show_right(pool);
    if (strcmp(argv[1], "reset") == 0) {
        CHECK_CU(cuDevicePrimaryCtxReset(2));
        show_right(pool);
        copy();
    }
    SHOW_CU(cuMemPoolSetAccess(pool, taken, strcmp(argv[1], "two") == 0 ? 2 : 1));
    show_right(pool);
    SHOW_CU(cuStreamSynchronize(NULL));
    return 0;
}
