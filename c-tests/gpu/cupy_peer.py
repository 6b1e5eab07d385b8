"""CuPy copies between two GPUs by its runtime binding."""
import cupy

size = 1 << 20
with cupy.cuda.Device(0):
    source = cupy.arange(size, dtype=cupy.uint8)
with cupy.cuda.Device(1):
    target = cupy.zeros(size, dtype=cupy.uint8)
cupy.cuda.runtime.memcpyPeer(target.data.ptr, 1, source.data.ptr, 0, size)
with cupy.cuda.Device(1):
    cupy.cuda.runtime.deviceSynchronize()
    print("CuPy", int(target.astype(cupy.int64).sum()), "expected", sum(i % 256 for i in range(size)))
