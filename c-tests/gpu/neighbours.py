"""The shim beside other tools and libraries that want to be in the program: a sample must do beside them what it does alone, with the
shim preloaded and without. Tools that are not installed are skipped, by name; so are those that fail without the shim."""

import shutil
import subprocess
from pathlib import Path

import speed
from harness import BUILD, HERE, SHIM, Run, build, check, judge, report

SECONDS = 25  # a run; a check makes three at most, mostly of a second
TOOLS = (
    ("compute-sanitizer", ["--tool", "memcheck", "--error-exitcode", "9"]),
    ("cuda-gdb", ["-nx", "--batch", "-ex", "run", "--args"]),
    ("gdb", ["-nx", "--batch", "-ex", "run", "--args"]),
    ("ncu", ["--target-processes", "all"]),
    ("nsys", ["profile", "--stats=false", "--force-overwrite=true", "--output", BUILD / "nsys"]),
)


def limited(command):
    """A tool's children go with it when time is up."""
    return ["timeout", "-k", "2", SECONDS, *command]


def find(tool):
    """A tool's path; CUDA's are not always on PATH."""
    return shutil.which(tool) or next((str(path) for path in sorted(Path("/usr/local").glob(f"cuda*/bin/{tool}"))), None)


def compare(name, alone, command, plain, preloads):
    """A run without the shim, and one for each of `preloads`, write at least what the program writes alone, and end as it does."""
    expected = alone.out.splitlines()

    def ended(run):
        return [line for line in run.out.splitlines() if line in expected], run.status

    without = Run(limited(command), seconds=SECONDS + 5, **plain)
    if ended(without) != (expected, alone.status):
        return report("skipped", name, f"without the shim it does not run here either: {without.ended()}")
    for how, variables in preloads:
        shim = Run(limited(command), preload=True, seconds=SECONDS + 5, **{**plain, **variables})
        problems = [] if ended(shim) == ended(without) else [shim.ended()]
        if not shim.calls:
            problems.append("no call is in the trace")
        wrong = [finding for finding in shim.findings() if finding[1] in ("error", "hazard")]
        if wrong:
            problems.append(f"said to be wrong: {wrong}")
        said = [line for line in (shim.out + shim.err).splitlines() if "ERROR SUMMARY" in line or line.startswith("cupti: ")]
        judge(not problems, f"{name}{how and ', '}{how}", "; ".join(problems) or f"{len(shim.calls)} calls seen" + "".join(
            f"; {line.strip('= ')}" for line in said))


def tool(name, options, program, alone):
    path = find(name)
    if not path:
        return report("skipped", f"neighbours, {name}", "it is not installed")
    compare(f"neighbours, {name}", alone, [path, *options, program], {}, [("", {})])


def cupti(program, alone):
    library = speed.cupti()
    if not library:
        return report("skipped", "neighbours, CUPTI", "there is no cupti.h and libcupti.so under /usr/local/cuda*")
    for how in ("activity", "callbacks"):
        compare(f"neighbours, CUPTI {how}", alone, [program], {"CUDA_INJECTION64_PATH": str(library), "CUPTI_TRACES": how},
                [("", {}), ("with a trace", {"P2PSHIM_TRACE": str(BUILD / f"cupti-{how}")})])


def allocator(name, program, alone):
    carried = HERE / "allocators" / name
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True)
    system = [line.split()[-1] for line in listed.stdout.splitlines() if line.split()[:1] == [name]]
    library = str(carried) if carried.exists() else (system or [None])[0]
    if not library:
        return report("skipped", f"neighbours, {name}", "it is neither in the bundle nor installed")
    compare(f"neighbours, {name}", alone, [program], {"LD_PRELOAD": library}, [
        ("after the shim", {"LD_PRELOAD": f"{SHIM}:{library}"}), ("before the shim", {"LD_PRELOAD": f"{library}:{SHIM}"})])


def address_sanitizer(alone):
    """CUDA itself needs protect_shadow_gap=0 beside it, and keeps memory to the end."""
    program = BUILD / "guide_sample-address"
    command = ["nvcc", "-O1", "-g", f"-I{HERE}", "-Wno-deprecated-gpu-targets", "-cudart", "shared", "-Xcompiler",
               "-fsanitize=address", "-o", program, HERE / "cases/guide_sample.c"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    asan = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    if done.returncode != 0 or not asan.startswith("/"):
        return report("skipped", "neighbours, AddressSanitizer", f"it cannot be linked: {done.stderr[-200:]}")
    options = "protect_shadow_gap=0:detect_leaks=0"
    compare("neighbours, AddressSanitizer", alone, [program], {"ASAN_OPTIONS": options}, [
        ("its library first", {"LD_PRELOAD": f"{asan}:{SHIM}"}),
        ("told not to look", {"ASAN_OPTIONS": f"{options}:verify_asan_link_order=0"})])


def check_all():
    def sample():
        program = build("cases/guide_sample.c", "shared")
        return program, Run([program])

    def check_one(function, *arguments):
        program, alone = sample()
        function(*arguments, program, alone)

    for name, options in TOOLS:
        check(f"neighbours, {name}", check_one, tool, name, options)
    check("neighbours, CUPTI", check_one, cupti)
    for name in ("libjemalloc.so.2", "libtcmalloc_minimal.so.4"):
        check(f"neighbours, {name}", check_one, allocator, name)
    check("neighbours, AddressSanitizer", lambda: address_sanitizer(sample()[1]))
