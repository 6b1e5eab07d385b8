/* build stub/libcudart.so.12: plain; run: by linking
 * build stub/libcudart-12-copy.so: cudart12.map
 * Something to link with in place of a libcudart.so.12: names only. Built without symbol versions for
 * unversioned_reference, and with them, under another soname, for two_copies.
 */
#define STUB(name) \
    int name(void); \
    int name(void) { return 0; }

STUB(cudaDeviceDisablePeerAccess)
STUB(cudaDeviceSynchronize)
STUB(cudaFree)
STUB(cudaGetErrorName)
STUB(cudaGetLastError)
STUB(cudaMalloc)
STUB(cudaMemcpy)
STUB(cudaMemcpyPeer)
STUB(cudaRuntimeGetVersion)
STUB(cudaSetDevice)
