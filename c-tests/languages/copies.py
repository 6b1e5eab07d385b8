"""Copies between two GPUs in several threads of Python, by ctypes: in one interpreter, or in one for each thread.

    copies.py [interpreters]

Prints how many were wrong in code or bytes, and how many there were, as the programs beside it do.
"""

import ctypes
import os
import sys
import threading

THREADS, COPIES = 4, 24


def work(thread, counts):
    """The copies of a thread, there and back by turns; writes how many are wrong, and the bytes of each direction, to `counts`, an address."""
    counts = (ctypes.c_long * 3).from_address(counts)
    cuda = ctypes.CDLL("libcudart.so.12")
    size, wrong = ctypes.c_size_t, 0
    for i in range(COPIES):
        src, bytes_ = (thread + i) % 2, 4096 * (i + 1) + 13 * thread
        dst = 1 - src
        sent = bytes((j * 7 + thread * 31 + i) % 256 for j in range(256)) * (bytes_ // 256 + 1)
        received = ctypes.create_string_buffer(bytes_)
        a, b = ctypes.c_void_p(), ctypes.c_void_p()
        codes = [cuda.cudaSetDevice(src), cuda.cudaMalloc(ctypes.byref(a), size(bytes_)), cuda.cudaMemcpy(a, sent, size(bytes_), 1),
                 cuda.cudaSetDevice(dst), cuda.cudaMalloc(ctypes.byref(b), size(bytes_))]
        if i % 3 == 0:
            codes.append(cuda.cudaMemcpyPeer(b, dst, a, src, size(bytes_)))
        elif i % 3 == 1:
            codes += [cuda.cudaMemcpyPeerAsync(b, dst, a, src, size(bytes_), None), cuda.cudaDeviceSynchronize()]
        else:
            codes.append(cuda.cudaMemcpy(b, a, size(bytes_), 3))
        codes += [cuda.cudaMemcpy(received, b, size(bytes_), 2), cuda.cudaFree(a), cuda.cudaFree(b)]
        wrong += any(codes) or received.raw != sent[:bytes_]
        counts[1 + src] += bytes_
    counts[0] = wrong


def in_interpreter(thread, counts):
    """The same in an interpreter of the thread's own, with a lock of its own where ctypes can be had there."""
    script = f"import sys; sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r}); import copies; copies.work({thread}, {counts})"
    if sys.version_info >= (3, 13):
        import _interpreters as interpreters
        interpreter = interpreters.create("isolated")
    else:
        import _xxsubinterpreters as interpreters
        interpreter = interpreters.create(isolated=False)
    failed = (interpreters.exec if sys.version_info >= (3, 13) else interpreters.run_string)(interpreter, script)
    if failed:
        raise RuntimeError(failed)
    interpreters.destroy(interpreter)


def main():
    print("process", os.getpid(), file=sys.stderr, flush=True)
    each = [(ctypes.c_long * 3)(COPIES) for _ in range(THREADS)]
    function = in_interpreter if sys.argv[1:] == ["interpreters"] else work
    threads = [threading.Thread(target=function, args=(i, ctypes.addressof(counts))) for i, counts in enumerate(each)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wrong, there, back = (sum(counts[i] for counts in each) for i in range(3))
    print(f"{THREADS} threads: {wrong} wrong")
    print(f"0>1: {THREADS * COPIES // 2} copies, {there} bytes")
    print(f"1>0: {THREADS * COPIES // 2} copies, {back} bytes", flush=True)
    sys.exit(wrong != 0)


if __name__ == "__main__":
    main()
