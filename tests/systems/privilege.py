#!/usr/bin/env python3
"""Programs with few rights: in namespaces of their own, under a limit of memory, and where nothing can be written or asked.

    privilege.py

Runs programs of target/c-tests on simulated GPUs, and p2pshim itself. Prints a line a check: what was right, what was wrong, and what
could not be run, and why. Exits with 1 if anything was wrong. Filters of system calls and `ulimit` are in tests/it/least_privilege.rs;
set-user-ID programs and /etc/ld.so.preload in `make systems`. As root, all can be run where the kernel offers it.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "target/privilege"
P2PSHIM, LIBRARY = ROOT / "target/built/p2pshim", ROOT / "target/built/libp2pshim.so"
PROGRAMS = ROOT / "target/c-tests"
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LD_LIBRARY_PATH": str(ROOT / "target/sim/lib"), "P2PSIM_DEVICES": "2", "HOME": str(FOLDER)}
DEMO = [PROGRAMS / "demo_copies-12", "never"]
# 13 MB of records.
CALLS = ["env", f"LD_LIBRARY_PATH={PROGRAMS}/standin-runtime", PROGRAMS / "trace_at_limit", "1", "200000"]
STAGED, DIRECT = "64 through the host, 0 direct, data right", "0 through the host, 64 direct, data right"
RUN = [P2PSHIM, "run", "--sim", "2", "--no-check", "--no-report"]
OFFSETS = ["--monotonic", "100000000", "--boottime", "100000000"]
# A pid namespace has no /proc of its own unless it mounts one.
NAMESPACES = {
    "user": ["-U"], "user, as root": ["-Ur"], "mount": ["-Urm"], "network, IPC, UTS, cgroup": ["-Urniu", "-C"],
    "pid": ["-Urpf", "--mount-proc"], "pid, old /proc": ["-Urpf"],
    "time": ["-UrTf", *OFFSETS], "all": ["-UrmniuCTpf", "--mount-proc", *OFFSETS],
}
MIB = 1 << 20
results, not_run = [], []


def check(subject, said, *patterns):
    """Whether what was said has all of these in it."""
    lacks = [pattern for pattern in patterns if not re.search(pattern, said)]
    results.append(not lacks)
    print(("right  " if not lacks else "WRONG  ") + subject, flush=True)
    if lacks:
        print(f"{said.rstrip()}\n    lacks: {lacks}", flush=True)


def skip(subject, why):
    not_run.append(subject)
    print(f"not run  {subject}: {why}", flush=True)


def said(command, within=(), **variables):
    done = subprocess.run(
        [*within, *command], env=ENVIRONMENT | variables, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
    )
    return done.stdout + f"[{done.returncode}]"


def unshared(flags):
    """The command that makes such namespaces; None if they cannot be made, which is said."""
    tried = said(["unshare", *flags, "true"])
    return ["unshare", *flags, "--"] if tried == "[0]" else skip("namespaces " + " ".join(flags), tried)


def namespaces():
    lost = FOLDER / "lost"  # the verdicts of faults
    lost.mkdir(0o700)
    check("kept verdicts: made", said([P2PSHIM, "run", "--sim", "2", "--no-report", *DEMO]), "checked 2 GPUs", DIRECT)
    for name, flags in NAMESPACES.items():
        if not (within := unshared(flags)):
            continue
        traces = FOLDER / name.replace(" ", "-").replace("/", "")
        check(f"{name}: run", said([*RUN, "--trace", traces, *DEMO], within), DIRECT + r"\n\[0\]")
        check(f"{name}: report", said([P2PSHIM, "report", traces]), "were direct that would have been staged", "84, none dropped")
        check(f"{name}: path loses data", said([*RUN, PROGRAMS / "demo_copies-12", "enables"], within, P2PSIM_FAULT="corrupt:0>1"), STAGED)
        shared = said([P2PSHIM, "run", "--sim", "2", "--no-report", PROGRAMS / "memory_of_another_process"], within,
                      XDG_CACHE_HOME=str(lost), P2PSIM_FAULT="corrupt:0>1")
        check(f"{name}: memory of another process, path loses data", shared, "is not opened on device 0", "ends at once with 3")
        again = said([P2PSHIM, "run", "--sim", "2", "--no-report", *DEMO], within)
        check(f"{name}: kept verdicts hold", again, "^84 copies.*" + DIRECT)


def hangs():
    """Processes that hang, seen from other namespaces. Two in pid namespaces have the same number."""
    seen = "has been in cudaEventSynchronize for [1-9]"
    for name, count in (("pid", 2), ("time", 1), ("pid, old /proc", 1)):
        if not (within := unshared(NAMESPACES[name])):
            continue
        folder = FOLDER / ("hangs-" + name.replace(" ", "-").replace("/", ""))
        folder.mkdir()
        program = [*RUN, "--trace", folder / "t", PROGRAMS / "hanging-12", "event", folder]
        # Asks from inside too, once it hangs.
        ask = 'for _ in $(seq 600); do "$1" hang "$0/t" >"$0/inside" 2>&1; grep -q "does not return" "$0/inside" && break; sleep 0.1; done'
        inside = ["sh", "-c", f'"$@" & {ask}; "$1" hang >>"$0/inside" 2>&1; touch "$0/asked"; wait', folder]
        running = [subprocess.Popen([*within, *inside, *program], env=ENVIRONMENT, stdout=subprocess.DEVNULL) for _ in range(count)]
        try:
            for _ in range(600):
                if len(re.findall(seen, text := said([P2PSHIM, "hang", folder / "t"]))) == count and (folder / "asked").exists():
                    break
                time.sleep(0.1)
            own_proc = name != "pid, old /proc"
            cannot = r".*main \(hanging.c:\d+\)\." if name == "time" else ".*whether it still runs cannot be seen from here"
            all_are = f"(?s)(?:{seen}.*){{{count}}}"
            check(f"hang, {name}: from outside", text, all_are, seen + cannot)
            check(f"hang, {name}: from outside, not named", said([P2PSHIM, "hang"]), all_are)
            check(f"hang, {name}: inside", (folder / "inside").read_text(), seen + ("" if own_proc else cannot))
        finally:
            (folder / "go").touch()
            for process in running:
                process.wait(300)
        check(f"hang, {name}: report", said([P2PSHIM, "report", folder / "t"]), f"calls +{3 * count}, none dropped", f"{count} processes|pid")


class Group:
    """A control group with a limit of memory, of version 2 or 1."""

    def __init__(self):
        own = Path("/proc/self/cgroup").read_text()
        two, one = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")
        is_two = "memory" in ((two / "cgroup.controllers").read_text().split() if (two / "cgroup.controllers").exists() else [])
        above = re.search(r"^0::/(.*)$" if is_two else r"^\d+:(?:.*,)?memory(?:,.*)?:/(.*)$", own, re.M)
        if not above:
            raise OSError("no control group has a limit of memory")
        self.folder = (two if is_two else one) / above[1] / f"p2pshim-{os.getpid()}"
        self.folder.mkdir()
        self.limit = self.folder / ("memory.max" if is_two else "memory.limit_in_bytes")
        if not self.limit.exists():
            self.folder.rmdir()
            raise OSError("the control group above gives it no limit of memory")

    def said(self, limit, command, **variables):
        for _ in range(100):  # what the last program has left is taken back meanwhile
            try:
                self.limit.write_text(str(limit))
                break
            except OSError:
                time.sleep(0.05)
        enter = ["sh", "-c", f'echo $$ >{self.folder}/cgroup.procs && exec "$@"', "sh"]
        return said(command, enter, **variables)

    def least(self, command):
        less, enough = 0, 64 * MIB
        while enough - less > MIB // 2:
            middle = (less + enough) // 2
            less, enough = (less, middle) if self.said(middle, command).endswith("[0]") else (middle, enough)
        return enough


def memory():
    try:
        group = Group()
    except OSError as error:
        skip("limits of memory", error)
        return
    disk, ram = FOLDER / "disk", FOLDER / "ram"
    ram.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "p2pshim", ram], capture_output=True, check=False).returncode == 0
    preload = {"LD_PRELOAD": str(LIBRARY)}
    try:
        for name, command, right in (
            ("copies", DEMO, "data right"), ("threads", [PROGRAMS / "multithreaded-12"], ""), ("200,000 calls", CALLS, ""),
        ):
            least = group.least(command)
            # Simulated GPUs have their memory here, and what verifies takes some of it.
            for room, variables in (
                (6, {}), (6, {"P2PSHIM_TRACE": str(disk)}), (6, {"P2PSHIM_TRACE": str(ram)} if mounted else {}),
                (6, {"P2PSHIM_ACCESS": "off", "P2PSHIM_STAGING": "always"}), (32, {"P2PSHIM_READBACK": "sample"}),
            ):
                text = group.said(least + room * MIB, command, **preload | variables)
                check(f"{name} with {room} MiB more than {least / MIB:.1f}: {variables or 'no options'}", text, right, r"\[0\]$")
                shutil.rmtree(disk, ignore_errors=True)
                for file in ram.glob("*"):
                    file.unlink()
        if not mounted:
            skip("traces in memory", "no file system could be mounted")
    finally:
        if mounted:
            subprocess.run(["umount", ram], check=True)
        group.folder.rmdir()


def nothing_to_write():
    """The root is read-only, and what programs rely on elsewhere is empty."""
    for hidden in ("/dev/shm /run", "/tmp", "/sys /dev", "/proc", "/proc /sys /dev /run"):
        if str(ROOT).startswith("/tmp") and hidden == "/tmp":
            skip("no /tmp", "the programs lie there")
            continue
        mounts = " && ".join(f"mount -t tmpfs -o ro none {folder}" for folder in hidden.split())
        within = ["unshare", "-m", "sh", "-c", f'{mounts} && mount -o remount,bind,ro / && exec "$@"', "sh"]
        tried = said(["true"], within, HOME="")
        if tried != "[0]":
            skip(f"read-only, without {hidden}", tried)
            continue
        what = f"read-only, without {hidden}, HOME"
        nowhere = {"HOME": "", "LD_PRELOAD": str(LIBRARY)}
        check(f"{what}: preloaded", said(DEMO, within, **nowhere), "^" + r"84 copies.*" + DIRECT + r"\n\[0\]")
        named = {"P2PSHIM_TRACE": str(FOLDER / "t"), "P2PSHIM_LOG_FILE": str(FOLDER / "l"), "P2PSHIM_ACCESS": "off"}
        check(f"{what}: trace and log", said(DEMO, within, **nowhere | named), "LOG_FILE.*Read-only", "TRACE.*Read-only", STAGED + r"\n\[0\]")
        lost = said([PROGRAMS / "demo_copies-12", "enables"], within, **nowhere, P2PSIM_FAULT="corrupt:0>1")
        check(f"{what}: path loses data", lost, "data arrives wrong", STAGED + r"\n\[0\]")
        check(f"{what}: p2pshim run", said([P2PSHIM, "run", "--sim", "2", *DEMO], within, HOME=""), DIRECT, "no temporary folder can be made", r"\[0\]$")
        if "/proc" in hidden:
            check(f"{what}: hang", said([P2PSHIM, "hang"], within), "processes cannot be seen")
        check(f"{what}: doctor", said([P2PSHIM, "doctor", "--quick", "--sim", "2"], within, HOME=""), "Data arrived in every test of every pair")


def full_disk():
    """A file system without room: the doctor's answer stays, and a healthy node is not drained."""
    disk, bin_folder = FOLDER / "full", FOLDER / "bin"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "p2pshim", disk], capture_output=True, check=False).returncode != 0:
        skip("a full disk", "no file system could be mounted")
        return
    try:
        try:
            (disk / "fill").write_bytes(bytes(MIB))
        except OSError:
            pass
        doctor = [P2PSHIM, "doctor", "--quick", "--sim", "2"]
        for form in ("--json", "--csv", "--prometheus"):
            file = f"{form}={disk}/out"
            lost = "out cannot be written: No space left"
            check(f"full disk, {form}: healthy", said([*doctor, file]), lost, r"\[3\]$")
            check(f"full disk, {form}: path loses data", said([*doctor, file], P2PSIM_FAULT="drop:0>1"), lost, r"\[1\]$")
        bin_folder.mkdir()
        for name, does in (("p2pshim", f'exec {P2PSHIM} "$@" --quick --sim 2'), ("scontrol", "echo drained")):
            (bin_folder / name).write_text(f"#!/bin/sh\n{does}\n")
            (bin_folder / name).chmod(0o755)
        prolog = [ROOT / "docs/fleet/slurm-prolog.sh"]
        variables = {"PATH": f"{bin_folder}:{os.environ['PATH']}", "P2PSHIM_NODES": str(disk)}
        healthy = said(prolog, **variables)
        check("full disk, prolog: healthy", healthy if "drained" not in healthy else "drained", "cannot be written", r"\[0\]$")
        check("full disk, prolog: path loses data", said(prolog, **variables, P2PSIM_FAULT="drop:0>1"), "^drained$|\ndrained", r"\[1\]$")
    finally:
        subprocess.run(["umount", disk], check=True)


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(mode=0o700)
    (FOLDER / ".cache").mkdir(mode=0o700)
    for part in (namespaces, hangs, memory, nothing_to_write, full_disk):
        part()
    print(f"{sum(results)} of {len(results)} checks right, {len(not_run)} parts not run", flush=True)
    sys.exit(1 if not all(results) else 77 if not_run else 0)


main()
