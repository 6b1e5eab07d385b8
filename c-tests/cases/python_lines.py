"""Copies between devices from known lines of Python: some through a package, some by a thread, some in a signal handler.

    python3 python_lines.py libcudart.so.12 FOLDER COUNT

FOLDER is where a package is written to. `LINE` comments name the lines that copy.
"""

import ctypes
import importlib
import pathlib
import signal
import sys
import threading

FRAMEWORK = """\
def copy(cuda, to, of, size):
    return inner(cuda, to, of, size)


def inner(cuda, to, of, size):
    error = cuda.cudaMemcpyPeerAsync(to, 1, of, 0, size, None)
    assert error == 0, error
"""

cuda = ctypes.CDLL(sys.argv[1])
folder, count = pathlib.Path(sys.argv[2]) / "site-packages", int(sys.argv[3])
folder.mkdir(parents=True)
(folder / "framework.py").write_text(FRAMEWORK)
sys.path.insert(0, str(folder))
sys.dont_write_bytecode = True
framework = importlib.import_module("framework")


def allocate(device):
    pointer = ctypes.c_void_p()
    assert cuda.cudaSetDevice(device) == 0
    assert cuda.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)) == 0
    return pointer


class Trainer:
    def __init__(self):
        self.to = allocate(1)
        self.of = allocate(0)

    def step(self, size):
        framework.copy(cuda, self.to, self.of, ctypes.c_size_t(size))  # LINE step


def by_itself(trainer):
    names = [
        "spread over",
        "several",
        "lines",
    ]; cuda.cudaMemcpyPeerAsync(trainer.to, 1, trainer.of, 0, ctypes.c_size_t(1 << 16), None)  # LINE by_itself
    return names


def by_thread(trainer):
    cuda.cudaSetDevice(0)
    trainer.step(64)


def in_handler(trainer):
    """A handler of the C library's, which runs in the middle of whatever the thread is at."""
    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)
    of_c = handler(lambda _: cuda.cudaMemcpyPeerAsync(trainer.to, 1, trainer.of, 0, ctypes.c_size_t(32), None))  # LINE handler
    libc = ctypes.CDLL(None)
    libc.signal.restype = libc.signal.argtypes = None
    libc.signal(signal.SIGUSR1.value, of_c)
    libc.raise_(signal.SIGUSR1.value) if hasattr(libc, "raise_") else getattr(libc, "raise")(signal.SIGUSR1.value)


trainer = Trainer()
for _ in range(count):
    trainer.step(4096)
for _ in range(3):
    by_itself(trainer)
thread = threading.Thread(target=by_thread, args=(trainer,))
thread.start()
thread.join()
in_handler(trainer)
assert cuda.cudaDeviceSynchronize() == 0
print("done")
