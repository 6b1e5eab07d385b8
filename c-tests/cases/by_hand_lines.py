"""Copies by hand from device 0 to device 1, each half from a known line, through new memory of the host each time.

    python3 by_hand_lines.py libcudart.so.12 COUNT
"""

import ctypes
import sys

BYTES = ctypes.c_size_t(1 << 20)
TO_DEVICE, TO_HOST = 1, 2

cuda = ctypes.CDLL(sys.argv[1])


def allocate(device):
    pointer = ctypes.c_void_p()
    assert cuda.cudaSetDevice(device) == 0
    assert cuda.cudaMalloc(ctypes.byref(pointer), BYTES) == 0
    return pointer


first, second = allocate(0), allocate(1)
for step in range(int(sys.argv[2])):
    values = bytes([step + 1]) * BYTES.value
    assert cuda.cudaMemcpy(first, values, BYTES, TO_DEVICE) == 0
    host = ctypes.create_string_buffer(BYTES.value)
    assert cuda.cudaMemcpyAsync(host, first, BYTES, TO_HOST, None) == 0  # download
    assert cuda.cudaStreamSynchronize(None) == 0
    assert cuda.cudaMemcpyAsync(second, host, BYTES, TO_DEVICE, None) == 0  # upload
    assert cuda.cudaStreamSynchronize(None) == 0
print("done")
