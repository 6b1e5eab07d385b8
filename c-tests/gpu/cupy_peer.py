"""CuPy copies between two GPUs by its runtime binding, from its own memory pool."""
import cupy

size = 1 << 22
with cupy.cuda.Device(0):
    source = cupy.arange(size, dtype=cupy.uint8)
    cupy.cuda.runtime.deviceSynchronize()
with cupy.cuda.Device(1):
    target = cupy.zeros(size, dtype=cupy.uint8)
    cupy.cuda.runtime.deviceSynchronize()
for _ in range(20):
    cupy.cuda.runtime.memcpyPeer(target.data.ptr, 1, source.data.ptr, 0, size)
with cupy.cuda.Device(0):
    cupy.cuda.runtime.deviceSynchronize()
with cupy.cuda.Device(1):
    cupy.cuda.runtime.deviceSynchronize()
    print("CuPy", int(target.astype(cupy.int64).sum()), "expected", size // 256 * sum(range(256)))
