"""The neighbours of `make neighbours`, and programs of other languages: how each is had, and how it comes into a program.

To add one: a row of ALL, whose function gives a Beside, or raises NotHad with the reason; packages are pinned in c-tests/neighbours.txt.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "c-tests/gpu"))
from gauntlet import Simulated  # noqa: E402

C, DEBS, ALLOCATORS, GO, BUILT = (ROOT / "target" / name for name in ("c-tests", "neighbours/lib", "allocators/lib", "go/go", "neighbours/built"))
SOURCES, CU12, SIM = ROOT / "c-tests/languages", ROOT / "target/nvidia/cu12", ROOT / "target/sim/lib"
SHIM = "p2pshim"  # stands for its library
PLACE = Simulated()
PLACE.variables = {"LD_LIBRARY_PATH": f"{SIM}:{DEBS}", "P2PSIM_DEVICES": "3"}
SOAK = (7, 4, 60, "rounds=4")
PROGRAMS = {"guide_sample": (C / "guide_sample-12",), "guide_sample-static": (C / "guide_sample-static",), "soak": (BUILT / "soak", *SOAK),
            "multithreaded": (C / "multithreaded-12",), "copies.py": (sys.executable, SOURCES / "copies.py")}


class NotHad(Exception):
    """A neighbour that cannot be had, and why."""


@dataclass
class Beside:
    """A neighbour in programs: what is preloaded, variables, a launcher; each way to have p2pshim there too, as a name, a launcher, what is preloaded."""

    libraries: list = field(default_factory=list)
    variables: dict = field(default_factory=dict)
    launcher: tuple = ()
    ways: list = None
    programs: dict = field(default_factory=lambda: PROGRAMS)
    is_loose: bool = False  # the trace of soak need not be whole: docs/LIMITS.md, or the neighbour's own calls are in it

    def __post_init__(self):
        orders = [[*self.libraries[:at], SHIM, *self.libraries[at:]] for at in range(len(self.libraries) + 1)]
        self.ways = self.ways or [(" before ".join(Path(one).name.split(".")[0] for one in order), (), order) for order in orders]


def made(*command, **variables):
    if not shutil.which(command[0]):
        raise NotHad(f"{command[0]} is not installed")
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=os.environ | variables)
    if done.returncode != 0:
        raise NotHad(f"{Path(command[0]).name}: {(done.stderr.strip() or done.stdout.strip()).splitlines()[-1][:200]}")
    return done.stdout.strip()


def compiled(program, into, *flags):
    made("gcc", "-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-DANY_ALLOCATOR", f"-I{ROOT}/c-tests", "-isystem", CU12 / "include", *flags, ROOT / f"c-tests/cases/{program}.c",
         CU12 / "lib/libcudart.so.12", SIM / "libcuda.so.1", "-lpthread", "-ldl", "-o", into)


def package(file, variables=None, **more):
    def prepare():
        made(ROOT / "c-tests/fetch-debian", file.parent.parent.name)
        return Beside([file], variables or {}, **more)
    return prepare


def launched(name, *options):
    """p2pshim is preloaded into a launcher, and `p2pshim run` is outside of it and inside."""
    made(ROOT / "c-tests/fetch-debian", "neighbours")
    launcher, run = (DEBS / name, *options), (PLACE.command, "run", "--")
    return Beside(launcher=launcher, ways=[
        ("preloaded into the launcher", launcher, [SHIM]), ("p2pshim run outside", (*run, *launcher), []), ("p2pshim run inside", (*launcher, *run), [])])


def sanitized(name, variables, *others):
    """Programs built with a sanitizer, perhaps with its library preloaded. Small stacks, which soak has, are not for AddressSanitizer."""
    programs = {}
    for program, more in (("guide_sample", ()), ("multithreaded", ()), *([("soak", SOAK)] if name == "undefined" else [])):
        programs[program] = (BUILT / f"{program}-{name}", *more)
        compiled(program, programs[program][0], f"-fsanitize={name}")
    orders = [[made("gcc", f"-print-file-name={one}") if one != SHIM else one for one in order] for order in others]
    return Beside([], variables, ways=[(" before ".join(Path(one).name for one in order), (), order) for order in orders], programs=programs)


def language(name, *command):
    return Beside(programs={name: command})


def java():
    made(ROOT / "c-tests/fetch-debian", "neighbours")
    made("java", "--version")
    library = BUILT / "com/sun/jna/linux-x86-64/libjnidispatch.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(DEBS / "libjnidispatch.system.so", library)
    return language("Copies.java", "java", "-cp", f"{DEBS}/jna-5.13.0.jar:{BUILT}", SOURCES / "Copies.java")


def go():
    made(ROOT / "c-tests/fetch-wheels", "go")
    for tool in [*(GO / "bin").iterdir(), *(GO / "pkg/tool/linux_amd64").iterdir()]:
        tool.chmod(0o755)
    made(GO / "bin/go", "build", "-o", BUILT / "copies-go", SOURCES / "copies.go", CGO_ENABLED="1", CGO_CFLAGS=f"-I{CU12}/include", GOTOOLCHAIN="local",
         CGO_LDFLAGS=f"{CU12}/lib/libcudart.so.12", GOROOT=str(GO), GOCACHE=str(BUILT / "go-cache"), GOPATH=str(BUILT / "go-path"), GOTELEMETRY="off")
    return language("copies.go", BUILT / "copies-go")


def fortran():
    made(ROOT / "c-tests/fetch-debian", "neighbours")
    made("gcc", f"-B{DEBS}/", "-fopenmp", "-O1", SOURCES / "copies.f90", CU12 / "lib/libcudart.so.12", DEBS / "libgfortran.so.5", f"-Wl,-rpath-link,{DEBS}",
         "-lm", "-o", BUILT / "copies-fortran", f"-J{BUILT}")
    return language("copies.f90", BUILT / "copies-fortran")


def python(variable, names, condition, *arguments):
    """The interpreter that the variable names, or the first on PATH or of pyenv that meets a condition."""
    found = [os.environ.get(variable), *(shutil.which(name) for name in names), *sorted(map(str, Path.home().glob(".pyenv/versions/3.*/bin/python3")), reverse=True)]
    path = next((path for path in found if path and subprocess.run([path, "-c", f"import sys; assert {condition}"], capture_output=True).returncode == 0), None)
    if not path:
        raise NotHad(f"no {names[-1]} or later; neither PyPI nor Debian has it as a package ({variable} names one)")
    return language("copies.py " + " ".join(arguments), path, SOURCES / "copies.py", *arguments)


PROXY = {"PROXYCHAINS_CONF_FILE": BUILT / "proxychains.conf", "PROXYCHAINS_QUIET_MODE": "1"}
FASTER, STOPPED = {"FAKETIME": "@2001-01-01 00:00:00 x100"}, {"FAKETIME": "2001-01-01 00:00:00"}
ASAN, UNORDERED = {"ASAN_OPTIONS": "detect_leaks=0"}, {"ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0"}
WRAPS, SHARES, REWRITES = C / "libwraps_driver.so", C / "libshares_gpu.so", C / "librewrites_got.so"
ALL = {
    "jemalloc": package(ALLOCATORS / "libjemalloc.so.2"), "tcmalloc": package(ALLOCATORS / "libtcmalloc_minimal.so.4"),
    "mimalloc": package(DEBS / "libmimalloc.so.2"), "eatmydata": package(DEBS / "libeatmydata.so.1"),
    "eatmydata, its launcher": lambda: launched("eatmydata"), "faketime, a year later": package(DEBS / "libfaketime.so.1", {"FAKETIME": "+1y"}),
    "faketime, 100 times as fast": package(DEBS / "libfaketimeMT.so.1", FASTER, is_loose=True),
    "faketime, stopped": package(DEBS / "libfaketime.so.1", STOPPED, is_loose=True),
    "proxychains": package(DEBS / "libproxychains.so.4", PROXY),
    "proxychains, its launcher": lambda: launched("proxychains4", "-q", "-f", BUILT / "proxychains.conf"),
    "AddressSanitizer": lambda: sanitized("address", ASAN, ["libasan.so", SHIM]),
    "AddressSanitizer, order unchecked": lambda: sanitized("address", UNORDERED, [SHIM], [SHIM, "libasan.so"]),
    "UndefinedBehaviorSanitizer": lambda: sanitized("undefined", {}, [SHIM], [SHIM, "libubsan.so"], ["libubsan.so", SHIM]),
    "LD_AUDIT": lambda: Beside(variables={"LD_AUDIT": C / "libaudit_calls.so"}),
    "CUDA_INJECTION64_PATH": lambda: Beside(variables={"CUDA_INJECTION64_PATH": C / "libinjection.so"}, is_loose=True),
    "tables rewritten": lambda: Beside([REWRITES], {"LD_BIND_NOW": "1"}), "tables rewritten, next": lambda: Beside([REWRITES], {"REWRITES": "next"}, is_loose=True),
    "dlsym wrapped": lambda: Beside([WRAPS]), "dlsym wrapped, own table": lambda: Beside([SHARES]),
    "dlsym wrapped twice": lambda: Beside([WRAPS, SHARES]), "dlsym wrapped twice, reversed": lambda: Beside([SHARES, WRAPS]),
    "Java, by JNA": java, "Go, by cgo": go, "Fortran, OpenMP": fortran,
    "Python, an interpreter for each thread": lambda: python("PYTHON_ISOLATED", ["python3.14", "python3.13"], "sys.version_info >= (3, 13)", "interpreters"),
    "Python, interpreters with one lock": lambda: python("PYTHON", [sys.executable], "True", "interpreters"),
    "Python, free-threaded": lambda: python("PYTHON_FREE_THREADED", ["python3.14t", "python3.13t"], "not sys._is_gil_enabled()"),
}
