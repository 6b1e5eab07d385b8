#!/usr/bin/env python3
"""races.py [--threads N] [--steps N] [--seed S] [--fault]: does ThreadSanitizer see two threads use what no atomic and no lock orders?

Builds the library, the simulated GPUs and the standard library instrumented, by a nightly toolchain with its sources (`rustup toolchain install
nightly -c rust-src`), and runs `soak` of that many threads, without p2pshim and with it, under several options. Each report fails by its kind.
--fault has two threads take one chunk of a trace: that has to be reported. Exit status 1 if anything is reported, or a fault is not; 77 without such a toolchain.

The library does not come by LD_PRELOAD, since every program that the sanitizer starts would get it too, but is linked first, with the same effect.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET, HOST = ROOT / "target/tsan", "x86_64-unknown-linux-gnu"
BUILT, RUN = TARGET / HOST / "release", TARGET / "run"
NVIDIA = ROOT / "target/nvidia/cu12"
# The sanitizer looks for the real functions before anything else runs: not by the library's dlsym.
STUB = """#define _GNU_SOURCE
#include <dlfcn.h>
void *real_dlsym(void *handle, const char *name)
{
    static void *(*real)(void *, const char *);
    if (!real)
        *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return real(handle, name);
}
"""
# Handlers of soak allocate nothing, but the library's calls in them may.
OPTIONS = "die_after_fork=0 exitcode=66 history_size=4 report_signal_unsafe=0"
SETS = (
    ("plain", None),
    ("default", {}),
    ("traced", {"P2PSHIM_TRACE": "trace", "P2PSHIM_GPU_TIMING": "all"}),
    ("staged", {"P2PSHIM_TRACE": "trace", "P2PSHIM_STAGING": "always", "P2PSHIM_READBACK": "all", "P2PSIM_FAULT": "corrupt:0-1"}),
    ("strict", {"P2PSHIM_VALIDATE": "strict", "P2PSHIM_LOG": "debug"}),
)
FAULT = (
    "trace/src/writer/room.rs",
    "let taken = handed_out.fetch_update(SeqCst, Relaxed, |taken| (taken < ready).then_some(taken + 1));",
    "let taken = handed_out.fetch_update(SeqCst, Relaxed, |taken| (taken < ready).then_some(taken + 1)).map(|taken| taken / 2);",
)


def must(command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
    return done.stdout


def runtime():
    """The sanitizer's archive of a nightly toolchain that has its sources."""
    if shutil.which("rustup"):
        done = subprocess.run(["rustc", "+nightly", "--print", "sysroot"], capture_output=True, text=True)
        lib = Path(done.stdout.strip()) / "lib/rustlib"
        archives = [*(lib / HOST / "lib").glob("librustc*_rt.tsan.a")] if (lib / "src/rust/library").is_dir() else []
        if done.returncode == 0 and archives:
            return archives[0]
    print("No nightly toolchain with its sources: rustup toolchain install nightly -c rust-src")
    sys.exit(77)


def build(archive, tree):
    flags = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer -Adeprecated"
    variables = {"CARGO_TARGET_DIR": str(TARGET), "RUSTFLAGS": flags, "CARGO_PROFILE_RELEASE_LTO": "false", "CARGO_PROFILE_RELEASE_STRIP": "none"}
    variables |= {"CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16", "CARGO_PROFILE_RELEASE_DEBUG": "line-tables-only"}
    packages = [word for name in ("p2pshim", "p2psim-cuda", "p2psim-cudart") for word in ("-p", name)]
    must(["cargo", "+nightly", "build", "--quiet", "-Zbuild-std", "--target", HOST, "--release", *packages], cwd=tree, env=os.environ | variables)
    shutil.rmtree(RUN, ignore_errors=True)
    RUN.mkdir()
    sim = RUN / "sim"
    must(["make", "-f", "sim/link.mk", f"LIB={sim}", f"ARCHIVES={BUILT}", sim / "libcuda.so.1", sim / "libcudart.so.12"], cwd=ROOT)
    shutil.copy(BUILT / "libp2pshim.so", RUN)
    (RUN / "libp2pshim.so.0").symlink_to("libp2pshim.so")
    (RUN / "stub.c").write_text(STUB)
    must(["cc", "-O1", "-g", "-c", RUN / "stub.c", "-o", RUN / "stub.o"])
    must(["objcopy", "--redefine-sym", "dlsym=real_dlsym", archive, RUN / "rt.a"])
    case = ["cc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Ic-tests", "-isystem", NVIDIA / "include", "-fsanitize=thread", "-DANY_ALLOCATOR", "-c", "c-tests/cases/soak.c"]
    must([*case, "-o", RUN / "soak.o"], cwd=ROOT)
    for name, shim in (("soak-plain", []), ("soak", ["-Wl,--no-as-needed", RUN / "libp2pshim.so"])):
        whole = ["-Wl,--whole-archive", RUN / "rt.a", "-Wl,--no-whole-archive"]
        gpus = [NVIDIA / "lib/libcudart.so.12", sim / "libcuda.so.1"]
        must(["cc", RUN / "soak.o", RUN / "stub.o", *whole, *shim, *gpus, "-rdynamic", *"-lpthread -ldl -lm -lrt -lgcc_s".split(), "-o", RUN / name])


def reports(name, options, arguments):
    """The kinds of reports of a run, each with how often."""
    log = RUN / f"{name}.log"
    variables = {"LD_LIBRARY_PATH": f"{RUN}:{RUN}/sim", "TSAN_OPTIONS": f"{OPTIONS} log_path={log}"} | (options or {})
    program = RUN / ("soak-plain" if options is None else "soak")
    # The sanitizer wants its addresses where they are without randomness.
    done = subprocess.run(["setarch", "-R", program, *arguments], cwd=RUN, env=os.environ | variables, capture_output=True, text=True, timeout=1200)
    said = "".join(file.read_text(errors="replace") for file in RUN.glob(f"{log.name}.*"))
    kinds = [re.sub(r" \(BuildId.*?\)", "", kind) for kind in re.findall(r"SUMMARY: ThreadSanitizer: (.*)", said)]
    if done.returncode not in (0, 66) or "0 wrong" not in done.stdout:
        kinds.append(f"soak itself: status {done.returncode}, {(done.stdout + done.stderr)[-600:]}")
    # An option that is not obeyed tests nothing.
    kinds += [line for line in done.stderr.splitlines() if line.startswith("p2pshim: P2PSHIM_")]
    return {kind: kinds.count(kind) for kind in kinds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fault", action="store_true")
    given = parser.parse_args()
    archive, tree = runtime(), ROOT
    if given.fault:
        tree = TARGET / "tree"
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(ROOT, tree, ignore=lambda folder, _: ("target", ".git") if Path(folder) == ROOT else ())
        file, old, new = FAULT
        text = (tree / file).read_text()
        assert text.count(old) == 1, f"{file} has no {old}"
        (tree / file).write_text(text.replace(old, new))
    build(archive, tree)
    found = {}
    for name, options in (SETS[2:3] if given.fault else SETS):
        since = time.monotonic()
        # No small stacks, which the sanitizer does not fit on; no handler that copies, whose signals it puts off.
        kinds = reports(name, options, [str(given.seed), str(given.threads), str(given.steps), "real", "right"])
        print(f"{name}: {sum(kinds.values())} reports by {given.threads} threads, seed {given.seed}, {time.monotonic() - since:.0f} s", flush=True)
        [print(f"  {count} x {kind}") for kind, count in kinds.items()]
        found |= kinds
    if given.fault:
        print("found" if any("data race" in kind for kind in found) else "NOT FOUND: two threads take one chunk")
        sys.exit(not any("data race" in kind for kind in found))
    sys.exit(bool(found))


main()
