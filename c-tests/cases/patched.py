"""A program with a tool in it that patches the code of the driver's functions, and counts the calls.

    patched.py TOOL ORDER

    TOOL   frida: Frida's Interceptor, from another process. hookie: in this process, 14 bytes in place of the first
           instructions
    ORDER  over: it patches what dlsym returns. under: it patches what the driver's own table of symbols has, after the first
           calls; before: that, before the first call

Prints how many calls there were by each route, and how many of them the tool saw."""

import ctypes
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
FUNCTIONS = ("cuMemAlloc_v2", "cuMemFree_v2")
ATTACH = """
import sys
import frida
session = frida.attach(int(sys.argv[1]))
script = session.create_script('''
const counts = {};
rpc.exports = {
    hook(name, address) {
        counts[name] = 0;
        Interceptor.attach(ptr(address), { onEnter() { counts[name] += 1; } });
        Interceptor.flush();
    },
    count(name) { const seen = counts[name]; counts[name] = 0; return seen; }
};
''')
script.load()
print("ready", flush=True)
for line in sys.stdin:
    command, *words = line.split()
    print(getattr(script.exports_sync, command)(*words), flush=True)
"""


def types(name):
    return [ctypes.c_void_p, ctypes.c_size_t] if "Alloc" in name else [ctypes.c_void_p]


class Frida:
    def __init__(self):
        # Its leftovers go away with this process.
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"} | {"TMPDIR": self.folder.name}
        self.other = subprocess.Popen([sys.executable, "-c", ATTACH, str(os.getpid())], env=environment, text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.other.stdout.readline().strip() == "ready"

    def ask(self, *words):
        self.other.stdin.write(" ".join(words) + "\n")
        self.other.stdin.flush()
        return self.other.stdout.readline().strip()

    def hook(self, name, address):
        self.ask("hook", name, hex(address))

    def count(self, name):
        return int(self.ask("count", name))


class Hookie:
    def __init__(self):
        import hookie
        self.engine, self.counts, self.hooks = hookie.HookEngine(), {}, []

    def hook(self, name, address):
        self.counts[name] = 0

        def seen(*arguments):
            self.counts[name] += 1
            return original(*arguments)

        hook = self.engine.create_hook(address, seen, types(name), ctypes.c_int)
        original = hook.original
        hook.enable()
        self.hooks.append(hook)

    def count(self, name):
        seen, self.counts[name] = self.counts[name], 0
        return seen


def in_the_file(library, name):
    """Where a loaded library has a function, by its own table of symbols."""
    path, base = next((line.split()[-1], int(line.split("-")[0], 16)) for line in open("/proc/self/maps") if library in line)
    image = Path(path).read_bytes()
    table, count, size = struct.unpack_from("<Q", image, 40)[0], *struct.unpack_from("<H", image, 60), *struct.unpack_from("<H", image, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, table + size * number) for number in range(count)]
    symbols = next(section for section in sections if section[1] == 11)
    strings = sections[symbols[6]]
    for at in range(symbols[4], symbols[4] + symbols[5], 24):
        start, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", image, at)
        if image[strings[4] + start:strings[4] + start + len(name) + 1] == name.encode() + b"\0" and value:
            return base + value
    raise LookupError(name)


def calls(driver, runtime, client):
    def by(allocate, free):
        memory = ctypes.c_void_p()
        assert allocate(ctypes.byref(memory), ctypes.c_size_t(4096)) == 0 and free(memory) == 0

    def asked_for(name):
        found = ctypes.c_void_p()
        assert driver.cuGetProcAddress_v2(name.encode(), ctypes.byref(found), 12000, ctypes.c_uint64(0), None) == 0
        return ctypes.CFUNCTYPE(ctypes.c_int, *types(name))(found.value)

    yield "looked up", lambda: by(driver.cuMemAlloc_v2, driver.cuMemFree_v2)
    yield "asked for", lambda: by(asked_for("cuMemAlloc"), asked_for("cuMemFree"))
    yield "linked", lambda: client.allocate_and_free() == 0 or sys.exit("linked")
    yield "runtime", lambda: by(runtime.cudaMalloc, runtime.cudaFree)


def main():
    tool, order = {"frida": Frida, "hookie": Hookie}[sys.argv[1]](), sys.argv[2]
    driver, runtime = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libcudart.so.12")
    client = ctypes.CDLL(str(HERE.parent.parent / "target" / "c-tests" / "libdriver_client.so"))

    def patch():
        for name in FUNCTIONS:
            looked_up = ctypes.cast(getattr(driver, name), ctypes.c_void_p).value
            tool.hook(name, looked_up if order == "over" else in_the_file("libcuda.so.1", name))

    routes = list(calls(driver, runtime, client))
    if order == "before":
        patch()
    assert runtime.cudaSetDevice(0) == 0
    routes[2][1]()
    if order != "before":
        patch()
    for name in FUNCTIONS:
        tool.count(name)
    for name, call in routes:
        for _ in range(3):
            call()
        print(f"{name}: seen " + ", ".join(f"{tool.count(function)} of 3" for function in FUNCTIONS))


main()
