"""cuda-python copies between two GPUs by the runtime that it carries."""
import ctypes

from cuda.bindings import runtime


def check(answer):
    code, *values = answer
    assert code == runtime.cudaError_t.cudaSuccess, code
    return values[0] if values else None


size = 1 << 22
check(runtime.cudaSetDevice(0))
source = check(runtime.cudaMalloc(size))
check(runtime.cudaMemset(source, 7, size))
check(runtime.cudaDeviceSynchronize())
check(runtime.cudaSetDevice(1))
target = check(runtime.cudaMalloc(size))
for _ in range(20):
    check(runtime.cudaMemcpyPeer(target, 1, source, 0, size))
for device in (0, 1):
    check(runtime.cudaSetDevice(device))
    check(runtime.cudaDeviceSynchronize())
host = (ctypes.c_ubyte * size)()
check(runtime.cudaMemcpy(ctypes.addressof(host), target, size, runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost))
print("cuda-python", sum(host), "expected", 7 * size)
