"""What all checks on real GPUs share: building and running programs, plain and preloaded, and reporting what came out."""

import itertools
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
SHIM = HERE / "libp2pshim.so"
BUILD = Path(tempfile.mkdtemp(prefix="p2pshim-gpu-"))
# Verdicts end with the checks. Without this variable root would leave them to all users, and to the next checks.
os.environ.setdefault("XDG_CACHE_HOME", str(BUILD / "cache"))
TIMEOUT_SECONDS = 100

results = []
numbers = itertools.count()


class Failed(Exception):
    """A check cannot go on; the text says why."""


def report(outcome, name, detail=""):
    results.append(outcome)
    print(f"{outcome:7} {name}{': ' + detail if detail else ''}", flush=True)


def judge(right, name, detail=""):
    report("ok" if right else "FAILED", name, detail)


def wanted(name):
    """Arguments, if there are any, are parts of the names of the checks to make."""
    return len(sys.argv) == 1 or any(part in name for part in sys.argv[1:])


def check(name, function, *arguments):
    """Makes a check, if it is wanted."""
    if not wanted(name):
        return
    try:
        function(*arguments)
    except Failed as failure:
        report("FAILED", name, str(failure))


def clean_environment(**variables):
    """Ours, with these. The shim's variables of whoever runs the checks would make plain and preloaded runs something else."""
    return {name: value for name, value in os.environ.items() if not name.startswith("P2PSHIM")} | variables


class Run:
    """A program's run: status, output, what others wrote to standard error, and the calls in the trace."""

    def __init__(self, command, preload=False, trace=True, seconds=TIMEOUT_SECONDS, **variables):
        self.command = [str(word) for word in command]
        self.seconds = seconds
        log = BUILD / f"trace-{next(numbers)}"
        environment = clean_environment()
        if preload:
            environment["LD_PRELOAD"] = str(SHIM)
        if preload and trace:
            environment.update(P2PSHIM_LOG="trace", P2PSHIM_LOG_FILE=str(log))
        environment.update(variables)
        try:
            done = subprocess.run(self.command, env=environment, capture_output=True, text=True, timeout=seconds, cwd=BUILD)
            self.status, self.out, self.err = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as late:
            self.status = "timeout"
            self.out, self.err = ((part or b"").decode(errors="replace") for part in (late.stdout, late.stderr))
        self.trace = log.read_text(errors="replace") if log.exists() else ""
        log.unlink(missing_ok=True)
        # Depth 0 is one space after the thread's number; an indented line is a driver call inside a runtime call.
        self.calls = re.findall(r"^p2pshim \S+ \S+ ( *)(cu\w+)\(", self.trace, re.M)

    def findings(self):
        """What the shim found wrong: (rule, severity, function), each once."""
        return sorted(set(re.findall(r"(P2P-[a-z0-9-]+) \((\w+)\): (\w+)", self.trace)))

    def all(self):
        return {name for _, name in self.calls}

    def counts(self):
        names = sorted(name for _, name in self.calls)
        return ", ".join(f"{name} x{len(list(group))}" for name, group in itertools.groupby(names))

    def ended(self):
        """How it ended, in words for a report."""
        words = Path(self.command[0]).name, *self.command[1:]
        return f"{' '.join(words)} ends with {self.status}: {self.out[-200:]!r} {self.err.strip()[-300:]}"

    def numbers(self):
        """The numbers of a measuring program, a list a line; it must have succeeded."""
        if self.status != 0:
            raise Failed(self.ended())
        return [[float(word) for word in line.split("\t")] for line in self.out.splitlines()]


def at_once(*runs):
    """Runs that do not measure may go side by side: each is the arguments of a Run, and those by name."""
    with ThreadPoolExecutor(len(runs)) as pool:
        begun = [pool.submit(Run, command, **options) for command, options in runs]
        return [run.result() for run in begun]


def build(source, runtime="static", name=None):
    """Compiles a program with nvcc, once."""
    program = BUILD / (name or f"{Path(source).stem}-{runtime}")
    if program.exists():
        return program
    command = ["nvcc", "-O1", "-g", f"-I{HERE}", "-Wno-deprecated-gpu-targets", "-cudart", runtime, "-o", program]
    # Without the GPUs' own architecture, the kernel would be compiled again by the driver when it is loaded.
    # C++ has the extensions of GNU already.
    command += [HERE / source, "-arch=native" if source.endswith(".cu") else "-D_GNU_SOURCE"]
    # As its first line says: c-tests/README.md.
    words = (HERE / source).read_text().split("; run:")[0].split()
    libraries = ["-lcuda"] if "driver" in words else []
    done = subprocess.run([str(word) for word in command + libraries + ["-lpthread", "-ldl"]])
    if done.returncode != 0:
        raise Failed(f"{source} does not compile")
    return program


def table(rows):
    """Prints rows of text, the first of which is the head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("        " + "  ".join(word.rjust(width) for word, width in zip(row, widths)), flush=True)
