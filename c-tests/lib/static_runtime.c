/* build unseen-runtime/libcudart.so.99: -O2 -DcudaMemcpyPeerAsync=cudaMemcpyUnseen -DcudaMalloc=cudaMallocUnseen -DcudaSetDevice=cudaSetDeviceUnseen -ldl; run: by linking
 * Stands in for NVIDIA's static runtime, which runs on no simulated driver: linked into a program, or as a shared library with the
 * name of the shared one. Its internal functions have names such as NVIDIA's, its public ones lie between them, and it calls the
 * driver by what cuGetProcAddress gives it. Each layer does something after its call, so that none of them is a jump.
 */
#include "static_runtime.h"

#include <cuda.h>
#include <dlfcn.h>

/* What tells of which release the runtime is: 9.0, by the strings that NVIDIA's has. */
__attribute__((used)) static const char strings[] = "startup failure in cuda runtime\0cudaLaunchCooperativeKernel_ptsz";

#define NOINLINE __attribute__((noinline))

static CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
static CUresult (*copy_async)(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream);
static CUresult (*set_current)(CUcontext);
static CUresult (*alloc)(CUdeviceptr *, size_t);
static CUcontext contexts[2];
volatile int libcudart_static_0c4b_calls;

NOINLINE int libcudart_static_00aa_load(void)
{
	CUresult (*init)(unsigned), (*retain)(CUcontext *, CUdevice);
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	*(void **)&get = driver ? dlsym(driver, "cuGetProcAddress_v2") : NULL;
	if (!get || get("cuInit", (void **)&init, 12000, 0, NULL) || init(0)
	    || get("cuDevicePrimaryCtxRetain", (void **)&retain, 12000, 0, NULL)
	    || get("cuCtxSetCurrent", (void **)&set_current, 12000, 0, NULL)
	    || get("cuMemAlloc", (void **)&alloc, 12000, 0, NULL)
	    || get("cuMemcpyPeerAsync", (void **)&copy_async, 12000, 0, NULL))
		return 3;
	for (int device = 0; device < 2; device++)
		if (retain(&contexts[device], device))
			return 3;
	return 0;
}

NOINLINE int libcudart_static_11bb_copy(CUdeviceptr dst, int to, CUdeviceptr src, int from, size_t count, CUstream stream)
{
	int result = copy_async(dst, contexts[to], src, contexts[from], count, stream);

	libcudart_static_0c4b_calls++;
	return result;
}

NOINLINE int cudaMemcpyPeerAsync(void *dst, int to, const void *src, int from, size_t count, void *stream)
{
	int result = contexts[0] ? 0 : libcudart_static_00aa_load();

	if (!result)
		result = libcudart_static_11bb_copy((CUdeviceptr)dst, to, (CUdeviceptr)src, from, count, stream);
	libcudart_static_0c4b_calls++;
	return result;
}

NOINLINE int cudaSetDevice(int device)
{
	int result = contexts[0] ? 0 : libcudart_static_00aa_load();

	return result ? result : (int)set_current(contexts[device]);
}

NOINLINE int cudaMalloc(void **pointer, size_t bytes)
{
	return alloc((CUdeviceptr *)pointer, bytes);
}

NOINLINE int libcudart_static_ffee_last(void)
{
	return libcudart_static_0c4b_calls;
}
