"""Peer calls from Python by ctypes, which loads a runtime with RTLD_LOCAL and asks dlsym.

    python3 python_ctypes.py libcudart.so.12
"""

import ctypes
import sys

COUNT = 5000
cuda = ctypes.CDLL(sys.argv[1])
cuda.cudaGetErrorName.restype = ctypes.c_char_p


def show(name, *arguments):
    error = getattr(cuda, name)(*arguments)
    print(name, cuda.cudaGetErrorName(error).decode())


def allocate(device):
    pointer = ctypes.c_void_p()
    show("cudaSetDevice", device)
    show("cudaMalloc", ctypes.byref(pointer), ctypes.c_size_t(COUNT))
    return pointer


size = ctypes.c_size_t(COUNT)
b = allocate(1)
a = allocate(0)
sent = bytes(i * 7 % 256 for i in range(COUNT))
received = ctypes.create_string_buffer(COUNT)
can = ctypes.c_int(-7)
value = ctypes.c_int(-7)

show("cudaDeviceCanAccessPeer", ctypes.byref(can), 0, 1)
show("cudaDeviceGetP2PAttribute", ctypes.byref(value), 2, 0, 1)
print(can.value, value.value)
for copy in "cudaMemcpyPeer", "cudaMemcpyPeerAsync":
    stream = (None,) if copy.endswith("Async") else ()
    show("cudaMemcpy", a, sent, size, 1)
    show(copy, b, 1, a, 0, size, *stream)
    show("cudaDeviceSynchronize")
    show("cudaMemcpy", received, b, size, 2)
    print("right" if received.raw == sent else "WRONG")
    show("cudaMemcpy", b, bytes(COUNT), size, 1)
    show(copy, b, 99, a, 0, size, *stream)
    show("cudaGetLastError")
show("cudaMemcpy3DPeer", None)
show("cudaMemcpy3DPeerAsync", None, None)
show("cudaDeviceEnablePeerAccess", 1, 0)
show("cudaDeviceDisablePeerAccess", 1)
