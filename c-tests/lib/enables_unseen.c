/* Enables peer access; opened with RTLD_DEEPBIND, past any preload. */
#include <cuda.h>

CUresult enable(CUcontext peer, unsigned flags)
{
    return cuCtxEnablePeerAccess(peer, flags);
}
