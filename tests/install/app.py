"""A user's program in Python: copies between two devices by ctypes, and asks p2pshim what it has seen of that."""

import ctypes

import p2pshim

cuda = ctypes.CDLL("libcudart.so.12")


def allocate(device):
    memory = ctypes.c_void_p()
    cuda.cudaSetDevice(device)
    assert cuda.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(4096)) == 0
    return memory


source, destination = allocate(0), allocate(1)
assert cuda.cudaMemcpyPeer(destination, 1, source, 0, ctypes.c_size_t(4096)) == 0
pair = p2pshim.pair(0, 1)
assert p2pshim.pairs() == ({(0, 1): pair} if p2pshim.is_active() else {}), p2pshim.pairs()
copies, copied = pair.direct_copies + pair.staged_copies, pair.direct_bytes + pair.staged_bytes
print(f"p2pshim {p2pshim.version()} saw {copies} copies of {copied} bytes")
