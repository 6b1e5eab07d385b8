/* build: driver; run: by dlopen
 * A library that is linked with the driver: it allocates and frees by references.
 */
#include <cuda.h>

int allocate_and_free(void);

int allocate_and_free(void)
{
    CUdeviceptr memory;
    CUresult code = cuMemAlloc_v2(&memory, 4096);
    return code != CUDA_SUCCESS ? (int)code : (int)cuMemFree_v2(memory);
}
