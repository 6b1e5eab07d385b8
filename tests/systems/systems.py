#!/usr/bin/env python3
"""The packages of `make dist` on other systems: each in a root of its own, with its own C library, compiler and Python.

    systems.py [NAME…]

Makes a root of each suite of Debian in target/systems/roots/ by mmdebstrap, once; removing it makes it anew. Runs inside.sh there, in
namespaces of its own: nothing is mounted or left running afterwards. Prints a line a system; exits with 1 if anything was wrong.

Needs root, and a Debian mirror ($DEBIAN_MIRROR, or that of mmdebstrap) for roots that are not there yet. Older systems than
bullseye are not on Debian's mirrors any more. There is no glibc on musl (Alpine), where p2pshim does not run. Packages are those that the mirror has,
with apt's check of their signatures: it drops old versions. A mirror's lists may be out of date (a snapshot).
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "target/systems"
SUITES = ("bullseye", "trixie", "forky", "sid")
PACKAGES = "gcc,g++,python3,python3-pip,pkg-config,cmake,make,libcap2-bin"
SOURCES = {
    "app.c": "tests/install/app.c", "app.cpp": "tests/install/app.cpp", "app.py": "tests/install/app.py",
    "CMakeLists.txt": "tests/install/CMakeLists.txt", "demo.c": "c-tests/cases/demo_copies.c", "hanging.c": "c-tests/cases/hanging.c",
    "check.h": "c-tests/check.h", "inside.sh": "tests/systems/inside.sh", "include": "target/nvidia/cu12/include",
}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def make(suite):
    """The root of a suite; why there is none."""
    root, stamp = TARGET / "roots" / suite, TARGET / "roots" / f"{suite}.stamp"
    if stamp.exists() and stamp.read_text() == PACKAGES and root.is_dir():
        return root, ""
    shutil.rmtree(root, ignore_errors=True)
    root.parent.mkdir(exist_ok=True)
    # Lists of stable suites do not expire; those of others are as old as the mirror.
    options = ['Acquire::Check-Valid-Until "false"', 'APT::Install-Recommends "false"']
    command = [TARGET / "lib/mmdebstrap", "--mode=root", "--variant=apt", f"--include={PACKAGES}"]
    command += [f"--aptopt={option}" for option in options] + [suite, root] + [os.environ[it] for it in ["DEBIAN_MIRROR"] if it in os.environ]
    print(f"making {root.relative_to(ROOT)}", flush=True)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(root, ignore_errors=True)
        return None, "\n".join(done.stderr.splitlines()[-4:])
    stamp.write_text(PACKAGES)
    return root, ""


def lay_out(root):
    """What inside.sh needs, in the root's /work."""
    work = root / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    for name, source in SOURCES.items():
        (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(ROOT / source, work / name)
    for package in [*(ROOT / "target/dist").glob("*.deb"), *(ROOT / "target/dist").glob("*.whl")]:
        shutil.copy(package, work)
    (work / "static.c").write_text('#include <stdio.h>\nint main(void) { puts("static"); return 0; }\n')
    (work / "static.cpp").write_text('#include <iostream>\nint main() { try { throw 1; } catch (int) { std::cout << "caught\\n"; } }\n')


def enter(root, command):
    """Runs a command in the root, with a /proc and /tmp of its own, and this machine's few devices."""
    script = 'mount -t proc proc "$0/proc" && mount -t tmpfs tmpfs "$0/tmp" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'
    return subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, root, *command], env={"PATH": PATH},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1800, check=False,
    ).stdout


def main():
    if os.geteuid() != 0:
        sys.exit("systems: not run: only root makes roots and enters them")
    subprocess.run([ROOT / "c-tests/fetch-debian", "systems"], check=True)
    failed = False
    for suite in sys.argv[1:] or SUITES:
        root, why = make(suite)
        if root is None:
            print(f"{suite}: could not be had:\n{why}")
            failed = True
            continue
        lay_out(root)
        said = enter(root, ["bash", "/work/inside.sh"]).splitlines()
        what = next((line[4:] for line in said if line.startswith("has\t")), "nothing ran")
        right = sum(line.startswith("right\t") for line in said)
        is_right = said[-1:] == ["end"] and not any(line.startswith("WRONG\t") for line in said)
        failed = failed or not is_right
        print(f"{suite}: {what}: {right} checks right" + ("" if is_right else "; not all is as it should be:"), flush=True)
        if not is_right:
            print("\n".join("  " + line for line in said if not line.startswith(("right\t", "has\t"))), flush=True)
    sys.exit(failed)


main()
