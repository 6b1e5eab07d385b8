"""Numba copies between two GPUs, and enables peer access itself where the driver says that it can."""
import numpy
from numba import cuda

size = 1 << 22
numbers = numpy.arange(size, dtype=numpy.int32)
with cuda.gpus[0]:
    source = cuda.to_device(numbers)
    first_context = cuda.current_context()
with cuda.gpus[1]:
    target = cuda.device_array(size, dtype=numpy.int32)
    target.copy_to_device(source)
    before = int(target.copy_to_host().astype(numpy.int64).sum())
    if cuda.current_context().can_access_peer(0):
        cuda.current_context().enable_peer_access(first_context.handle)
    target.copy_to_device(numpy.zeros(size, dtype=numpy.int32))
    for _ in range(20):
        target.copy_to_device(source)
    after = int(target.copy_to_host().astype(numpy.int64).sum())
print("Numba", before, after, "expected", size * (size - 1) // 2)
