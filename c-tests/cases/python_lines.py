"""Copies between devices from known lines of Python: through a package, by a thread, in a signal handler, with a mistake.

    python3 python_lines.py libcudart.so.12 FOLDER COUNT

The package is written to FOLDER. Comments name the lines that copy.
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
        framework.copy(cuda, self.to, self.of, ctypes.c_size_t(size))  # step

    def copy(self, size):
        arguments = [self.to, 1, self.of, 0]
        return cuda.cudaMemcpyPeerAsync(*arguments, ctypes.c_size_t(size), None)  # copy


def by_thread(trainer):
    cuda.cudaSetDevice(0)
    for _ in range(3):
        trainer.step(64)


def in_handler(trainer):
    """The C library calls the handler at once, in the middle of whatever the thread is at."""
    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda _: trainer.copy(32))
    libc = ctypes.CDLL(None)
    libc.signal.restype, libc.signal.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    libc.signal(signal.SIGUSR1.value, ctypes.cast(handler, ctypes.c_void_p))
    getattr(libc, "raise")(signal.SIGUSR1.value)


def mistake(trainer):
    assert cuda.cudaMemcpyPeerAsync(trainer.to, 99, trainer.of, 0, ctypes.c_size_t(128), None) != 0  # mistake
    assert cuda.cudaGetLastError() != 0


trainer = Trainer()
for _ in range(count):
    trainer.step(4096)
for _ in range(3):
    trainer.copy(1 << 16)
    eval("trainer.copy(1 << 17)", {"trainer": trainer})
thread = threading.Thread(target=by_thread, args=(trainer,))
thread.start()
thread.join()
in_handler(trainer)
mistake(trainer)
assert cuda.cudaDeviceSynchronize() == 0
print("done")
