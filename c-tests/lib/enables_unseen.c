/* build: driver; run: by dlopen
 * Enables peer access, or makes an array; opened with RTLD_DEEPBIND, past any preload.
 */
#include <cuda.h>

CUresult enable(CUcontext peer, unsigned flags)
{
    return cuCtxEnablePeerAccess(peer, flags);
}

CUresult make_array(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
    return cuArrayCreate(array, descriptor);
}
