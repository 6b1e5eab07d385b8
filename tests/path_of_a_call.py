#!/usr/bin/env python3
"""path_of_a_call.py [--check | --list KIND]: which functions of the library one copy passes.

gdb steps through a copy like those before it (`c-tests/cases/one_copy.c`), on simulated GPUs, in a build without optimization, which
`make figures` makes. It steps through the simulated libraries, too, since they call ours, but not through the system's: read step by step,
the system's clock is never done. Of these, nothing counts.

A function is one that stands in src/, trace/ or host/, whether it was inlined or not, with all its closures and instances; those that a derive
makes are none. The file changes where an instruction is of a function in another file than the last one was: at calls and returns.

Prints a table of the kinds of copies. With --check its exit status is 1 if a goal is exceeded. With --list it prints the functions of a kind in
the order in which they were entered first, each below the one that it was entered in; one that is there again is in brackets.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import structure

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "target/figures/libp2pshim.so"
PROGRAM = ROOT / "target/c-tests/one_copy-12"
FETCHED = ROOT / "target/tools/gdb"
SOURCES = ("src", "trace/src", "host/src")
# A kind of copy: the argument of the program, options, and the most functions, files and changes of file.
KINDS = {
    "decided": ("between", {}, (100, 22, 180)),
    "recorded": ("between", {"P2PSHIM_TRACE": "{}/trace"}, (130, 28, 260)),
    "unchecked": ("between", {"P2PSHIM_VALIDATE": "off"}, None),
    "within": ("within", {}, (20, 8, 30)),
    "within-recorded": ("within", {"P2PSHIM_TRACE": "{}/trace"}, None),
}
RDTSC = b"\x0f\x31"
COUNTED = ("functions", "files", "changes of file")


class Function:
    def __init__(self, file, line, name):
        self.file, self.line, self.name = file, line, name


class Walk:
    """What the steps of a thread pass."""

    def __init__(self):
        # The frames of the stack, as their last instruction was: the stack pointer, where their code begins, and the functions that it was in,
        # the inlined ones last.
        self.frames = []
        # Every function, in the order in which they were entered first, and those that it was in then, itself last.
        self.entered = {}
        self.changes = 0
        # The functions of the last instruction that was ours.
        self.last = ()

    def step(self, stack, start, functions):
        """An instruction of code that begins at `start`, with the stack pointer, and the functions that it is in: none if these are not ours."""
        while self.frames and (self.frames[-1][0] < stack or self.frames[-1][1] == start):
            self.frames.pop()
        self.frames.append((stack, start, functions))
        if not functions or functions == self.last:
            return
        inside = []
        for function in (function for frame in self.frames for function in frame[2]):
            inside += [function] if inside[-1:] != [function] else []
            self.entered.setdefault(function, tuple(inside))
        self.changes += self.last != () and self.last[-1].file != functions[-1].file
        self.last = functions

    def tree(self):
        """A line for each function, below the one that it was entered in first."""
        last = ()
        for inside in self.entered.values():
            same = next((n for n, (one, other) in enumerate(zip(inside, last)) if one != other), min(len(inside), len(last)))
            for depth in range(same, len(inside) - 1):
                yield f"{'  ' * depth}({inside[depth].name})"
            function, last = inside[-1], inside
            yield f"{'  ' * (len(inside) - 1)}{function.name}  {function.file}:{function.line}"

    def counts(self):
        return len(self.entered), len({function.file for function in self.entered}), self.changes


class Sources:
    """The functions of the sources, found by a line in them."""

    def __init__(self):
        self.files, self.functions, self.named = {}, {}, {}

    def spans(self, path):
        """The functions of a file: name, first and last line. None for a file that is not ours."""
        if path not in self.files:
            folders = (*SOURCES, *re.findall(r"^target/[^/]+/build/p2pshim-[^/]+/out", path))
            source = next((source for source in folders if path.startswith(f"{source}/")), None)
            file = structure.File(ROOT, ROOT / source, ROOT / path) if source and (ROOT / path).exists() else None
            lines = ((name, structure.line_of(file.code, at), count) for name, at, count in file.functions()) if file else ()
            self.files[path] = [(name, first, first + count - 1) for name, first, count in lines] if file else None
        return self.files[path]

    def function(self, path, line, name):
        """The innermost function around a line. Where macros make functions it is found by the name that gdb has for it."""
        spans = self.spans(path)
        if spans is None:
            return None
        while (shorter := re.sub(r"<[^<>]*>", "", name.replace("->", ""))) != name:
            name = shorter
        name = re.sub(r"::\{closure.*", "", name)
        around = [span for span in spans if span[1] <= line <= span[2]]
        if not around:
            return self.named.get(name)
        written, first, _ = max(around, key=lambda span: span[1])
        *modules, last = name.split("::")
        shown = "::".join([*(part for part in modules if part[:1].isupper()), last])
        key = (path, first, shown if written.startswith("$") else None)
        function = self.functions.setdefault(key, Function(path, first, shown))
        return self.named.setdefault(name, function)


def record(into):
    """Runs in gdb: steps through the program from its first mark to its second, and writes what it has passed to a file."""
    import gdb

    gdb.execute("break mark", to_string=True)
    gdb.execute("run", to_string=True)
    gdb.execute("delete")
    gdb.execute("set language c")
    gdb.execute("set suppress-cli-notifications on")
    gdb.execute("set scheduler-locking on")
    maps = Path(f"/proc/{gdb.selected_inferior().pid}/maps").read_text()
    ours = [range(*(int(end, 16) for end in line.split()[0].split("-"))) for line in maps.splitlines() if f" {ROOT}/" in line]
    # Time stands still, or a step here and there would be one of work that is due now and then.
    now, reads_time = int(gdb.parse_and_eval("last_copy")), {}
    mark, steps, code = gdb.newest_frame().pc(), [], {}
    while not steps or steps[-1][0] != mark:
        at = steps[-1][0] if steps else mark
        if at not in reads_time:
            reads_time[at] = bytes(gdb.selected_inferior().read_memory(at, len(RDTSC))) == RDTSC
        gdb.execute("stepi", to_string=True)
        if reads_time[at]:
            gdb.execute(f"set $rdx = {now >> 32}")
            gdb.execute(f"set $rax = {now & 0xffffffff}")
        frame = gdb.newest_frame()
        if not any(frame.pc() in part for part in ours):
            # It has been called just now.
            gdb.execute("tbreak **(long *)$rsp", to_string=True)
            gdb.execute("continue", to_string=True)
            frame = gdb.newest_frame()
        steps.append((frame.pc(), int(frame.read_register("rsp"))))
    for at, _ in steps:
        if at in code:
            continue
        # Where it is in the innermost function, then where that is called in the function that it is inlined in, and so on; in the outermost
        # one it is where that is declared.
        line, block, places = gdb.find_pc_line(at), gdb.block_for_pc(at), []
        while block is not None and not block.is_static and not block.is_global:
            if block.function is not None:
                places.append((block.function.name, line.symtab.fullname() if line.symtab else "", line.line))
                line, start = block.function, block.start
            block = block.superblock
        if places:
            places[-1] = (line.name, line.symtab.fullname(), line.line)
        code[at] = (start if places else None, places[::-1])
    Path(into).write_text(json.dumps({"steps": steps, "code": list(code.items())}))


def gdb():
    """The gdb of this machine, or the one that packaging/get-tools has fetched, and the variables that it needs."""
    here = sysconfig.get_config_var("LIBDIR") or ""
    for command, variables in (
        (["gdb"], {}),
        ([sys.executable, FETCHED / "bin/gdb"], {"PYTHONPATH": str(FETCHED), "LD_LIBRARY_PATH": here}),
    ):
        variables = os.environ | variables
        if shutil.which(command[-1]):
            done = subprocess.run([*command, "-nx", "-batch", "-ex", "python print(6 * 7)"], capture_output=True, text=True, env=variables)
            if done.stdout == "42\n":
                return command, variables
    sys.exit(
        "path_of_a_call: no gdb that runs Python: install gdb, or fetch one by `packaging/get-tools gdb`, which needs the libpython of "
        f"python3 in {here}"
    )


def walk(kind, debugger):
    """What a copy of a kind passes."""
    argument, options, _ = KINDS[kind]
    command, variables = debugger
    with tempfile.TemporaryDirectory() as folder:
        options = options | {"LD_PRELOAD": LIBRARY, "LD_LIBRARY_PATH": ROOT / "target/sim/lib", "XDG_CACHE_HOME": "/dev/null"}
        orders = ["set pagination off", "set startup-with-shell off", "unset environment"]
        orders += [f"set environment {name} {value}".replace("{}", folder) for name, value in options.items()]
        script, file = Path(__file__).resolve(), f"{folder}/steps"
        orders.append(f"python import sys; sys.path.insert(0, {str(script.parent)!r}); import {script.stem}; {script.stem}.record({file!r})")
        arguments = [word for order in orders for word in ("-ex", order)]
        done = subprocess.run([*command, "-nx", "-batch", *arguments, "--args", PROGRAM, argument], capture_output=True, text=True, env=variables)
        if not Path(file).exists():
            sys.exit(f"path_of_a_call: gdb did not come through {PROGRAM.name} {argument}:\n{done.stdout}{done.stderr}")
        found = json.loads(Path(file).read_text())
    return walked(found["steps"], dict(found["code"]))


def walked(steps, code):
    sources, resolved, way = Sources(), {}, Walk()
    for at, stack in steps:
        if at not in resolved:
            start, places = code[at]
            functions = (sources.function(os.path.relpath(path, ROOT), line, name) for name, path, line in places)
            resolved[at] = start, tuple(function for function in functions if function)
        way.step(stack, *resolved[at])
    return way


def main():
    options = argparse.ArgumentParser(prog="path_of_a_call.py", description="Which functions of the library one copy passes.")
    what = options.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="fail if a goal is exceeded")
    what.add_argument("--list", metavar="KIND", choices=KINDS, help=f"the functions that a copy passes: {', '.join(KINDS)}")
    chosen = options.parse_args()
    for file in (LIBRARY, PROGRAM):
        if not file.exists():
            sys.exit(f"path_of_a_call: {file} is missing: `make figures` builds it")
    debugger = gdb()
    if chosen.list:
        print("\n".join(walk(chosen.list, debugger).tree()))
        return
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        walks = dict(zip(KINDS, pool.map(lambda kind: walk(kind, debugger), KINDS)))
    exceeded = []
    print(f"{'copy':<16}" + "".join(f"{what:>17}" for what in COUNTED) + "   goals")
    for kind, way in walks.items():
        goals = KINDS[kind][2]
        over = [f"{kind}: {count} {what}, at most {goal}" for count, what, goal in zip(way.counts(), COUNTED, goals or ()) if count > goal]
        exceeded += over
        note = f"   {', '.join(map(str, goals))}{'  over' if over else ''}" if goals else ""
        print(f"{kind:<16}" + "".join(f"{count:>17}" for count in way.counts()) + note)
    if chosen.check and exceeded:
        sys.exit("path_of_a_call: more than the goals: " + "; ".join(exceeded))


if __name__ == "__main__":
    main()
