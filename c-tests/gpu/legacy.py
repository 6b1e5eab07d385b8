"""NVIDIA's runtimes of CUDA 9.0 to 10.2, which c-tests/fetch-legacy brings: codes plain and preloaded, findings, and how fast a
program copies that never enables peer access."""

import re
import shutil
import subprocess
from statistics import median

from harness import BUILD, HERE, Failed, Run, at_once, judge, report, table

SOURCE = HERE / "cases" / "legacy.c"
LIBRARIES = HERE / "legacy"
# Copies on capturing streams succeed under the shim, which makes others in their place.
CAPTURED = re.compile(r"^(CAPTURE\tcudaMemcpy(3D)?PeerAsync|\(CAPTURE, cudaMemcpyPeerAsync)\(")
ROUNDS = 3
LEAST_DIRECT = 0.98  # bandwidth of a program that never enables, preloaded, to that of one that does
SECONDS = 240  # for all rows of a runtime


def versions():
    found = [path.name.removeprefix("libcudart.so.") for path in LIBRARIES.glob("libcudart.so.*")]
    return sorted(found, key=lambda version: [int(part) for part in version.split(".")])


def program(version):
    made = BUILD / f"legacy-{version}"
    if not made.exists():
        command = ["gcc", "-std=c11", "-D_GNU_SOURCE", "-O1", f"-I{HERE}", SOURCE, LIBRARIES / f"libcudart.so.{version}", f"-Wl,-rpath,{LIBRARIES}", "-o", made]
        if subprocess.run([str(word) for word in command]).returncode != 0:
            raise Failed("legacy.c does not compile")
    return made


def codes(version):
    options = {"trace": False, "seconds": SECONDS}
    plain, shim = at_once(([program(version)], options),
                          ([program(version)], {**options, "preload": True, "P2PSHIM_LOG": "warn,p2pshim::finding=info"}))
    problems = [f"{run.ended()}" for run in (plain, shim) if run.status != 0]
    rows = list(zip(plain.out.splitlines(), shim.out.splitlines()))
    differ = [(one, other) for one, other in rows if one != other and not CAPTURED.match(one)]
    problems += [f"plain {one!r}, preloaded {other!r}" for one, other in differ[:3]]
    # A code that has no name, or is said not to be documented, is one that was read in the wrong numbers.
    wrong = [line for line in shim.err.splitlines() if re.search(r"P2P-error-undocumented|returned \d|documented: \d", line)]
    problems += wrong[:3]
    judge(not problems and len(rows) > 60, f"legacy {version}, codes", "\n".join(problems) or f"{len(rows)} rows, the same plain and "
          f"preloaded but for copies while capturing; {len(re.findall('P2P-', shim.err)) // 2} findings, each code with its name")


def bandwidth(version):
    ways = {"never, plain": ("never", {}), "enables, plain": ("enables", {}), "never, preloaded": ("never", {"preload": True})}
    rounds = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, (mode, options) in ways.items():
            rounds[name].append(Run([program(version), mode], trace=False, **options).numbers()[0])
    figures = {name: [median(column) for column in zip(*of)] for name, of in rounds.items()}
    ratio = figures["never, preloaded"][0] / figures["enables, plain"][0]
    table([[f"runtime {version}", *figures, "preloaded/enables"],
           ["GB/s / host us", *(f"{rate:.1f} / {host:.1f}" for rate, host in figures.values()), f"{ratio:.3f}"]])
    judge(ratio >= LEAST_DIRECT, f"legacy {version}, bandwidth", f"{ratio:.3f} of the bandwidth with access enabled, limit {LEAST_DIRECT}")


def traced(version):
    """The report of a run names the runtime, and a code by number and name."""
    folder = BUILD / f"legacy-trace-{version}"
    run = Run([program(version)], preload=True, trace=False, seconds=SECONDS, P2PSHIM_TRACE=str(folder))
    told = Run([HERE / "p2pshim", "report", folder, "--no-symbols"], trace=False).out
    shutil.rmtree(folder, ignore_errors=True)
    number = 50 if version in ("9.0", "10.0") else 704
    wanted = f"cudaErrorPeerAccessAlreadyEnabled ({number})"
    judge(run.status == 0 and wanted in told, f"legacy {version}, report", wanted if wanted in told else told[:400])


def legacy():
    if not versions():
        report("skipped", "legacy", "c-tests/fetch-legacy could bring none when the bundle was made")
    for version in versions():
        codes(version)
        bandwidth(version)
        traced(version)
