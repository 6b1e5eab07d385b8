"""A user's tests, of which some fail since copies are staged: tests/it/install.rs knows which."""

import atexit
import ctypes
import os

import pytest

import p2pshim


def copy(count, access="auto"):
    cuda = ctypes.CDLL("libcudart.so.12")
    p2pshim.set_option("access", access)
    memory = [ctypes.c_void_p(), ctypes.c_void_p()]
    for device, pointer in enumerate(memory):
        cuda.cudaSetDevice(device)
        assert cuda.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(65536)) == 0
    for _ in range(count):
        assert cuda.cudaMemcpyPeer(memory[1], 1, memory[0], 0, ctypes.c_size_t(65536)) == 0


@pytest.fixture(scope="module")
def process():
    return os.getpid()


def test_plain(process):
    assert process == os.getpid()


@pytest.mark.p2pshim(no_staged=True, no_hazard=True)
def test_direct(process):
    copy(40)
    assert process == os.getpid()


@pytest.mark.p2pshim(no_staged=True)
def test_staged():
    copy(40, "app")


@pytest.mark.p2pshim(no_staged="10MB")
def test_allowed():
    copy(40, "app")


@pytest.mark.p2pshim(no_staged=True)
@pytest.mark.parametrize("count", [20, 40])
def test_counts(count):
    copy(count)


@pytest.mark.p2pshim(no_staged=True)
def test_wrong():
    copy(40)
    assert 1 == 2, "by itself"


@pytest.mark.p2pshim(no_staged=True)
def test_nothing():
    """Copies nothing that could be judged."""


@pytest.mark.p2pshim(no_staged=True)
def test_skipped():
    pytest.skip("not today")


@pytest.mark.xfail
@pytest.mark.p2pshim(no_staged=True)
def test_expected():
    assert 1 == 2


@pytest.mark.p2pshim(no_staged=True)
def test_killed():
    os.abort()


@pytest.mark.p2pshim(no_staged=True)
def test_staged_then_ends():
    """Its process ends with a status of its own."""
    copy(40, "app")
    atexit.register(os._exit, 5)


@pytest.mark.p2pshim(no_staged=True)
def test_direct_then_ends():
    copy(40)
    atexit.register(os._exit, 5)


@pytest.fixture
def torn():
    yield
    raise RuntimeError("torn down")


@pytest.mark.p2pshim(no_staged=True)
def test_staged_then_torn(torn):
    copy(40, "app")
