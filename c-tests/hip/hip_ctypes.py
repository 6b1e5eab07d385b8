"""Peer functions of HIP by ctypes, as Python programs call them: hip_ctypes.py LIBRARY."""

import ctypes
import sys

hip = ctypes.CDLL(sys.argv[1])
hip.hipGetErrorName.restype = ctypes.c_char_p


def show(name, *arguments):
    code = getattr(hip, name)(*arguments)
    print(f"{name} = {hip.hipGetErrorName(code).decode()}, last {hip.hipPeekAtLastError()} {hip.hipGetLastError()}")


can = ctypes.c_int(-77)
show("hipDeviceCanAccessPeer", ctypes.byref(can), 0, 1)
show("hipDeviceEnablePeerAccess", 1, 0)
show("hipDeviceDisablePeerAccess", 1)
show("hipDeviceGetP2PAttribute", ctypes.byref(can), 1, 0, 1)
show("hipMemcpyPeer", None, 1, None, 0, ctypes.c_size_t(0))
show("hipMemcpyPeerAsync", None, 1, None, 0, ctypes.c_size_t(0), None)
show("hipCtxEnablePeerAccess", None, 0)
show("hipCtxDisablePeerAccess", None)
print(f"can = {can.value}")
