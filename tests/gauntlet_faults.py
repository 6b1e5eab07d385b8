#!/usr/bin/env python3
"""Faults that the library once had, put back one by one in a copy of it: does the gauntlet find each, and how soon?

    gauntlet_faults.py [--minutes N] [--seed S] [--jobs N] [NAME…]
    gauntlet_faults.py --check

Copies the sources to target/faults/, changes a place there, builds the library, and runs c-tests/gpu/gauntlet.py from a seed on with it, until a round
fails: small rounds first, then whole ones for minutes. Prints a line a fault; exits with 1 if one is not found. --check only says whether each place is there once, which tests do.
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
COPY, BUILT = ROOT / "target/faults/tree", ROOT / "target/faults/build"
LEFT_OUT = ("target", ".git")
sys.path.insert(0, str(ROOT / "c-tests/gpu"))
from gauntlet import OTHERS  # noqa: E402
BRIEF = 84  # small rounds: one of each program that the gauntlet has
WAITS, ENTRIES = "src/policy/waits.rs", "src/policy/waits/entries.rs"
FIRST = "fn announce_first(call: &Call<'_>, stream: Stream, ends: Endpoints) -> Option<Announced> {\n"
# The program that shows a fault, which is tried first: its place among the gauntlet's other programs decides the seed.
SHOWN_BY = {"record-dropped": "waits_churn-12", "left-forgotten": "waits_stepped", "wrong-generation": "random_threads-12", "event-given-away": "random_threads-12",
            "graph-event-given-away": "kept_waits-static", "limit-of-entries": "kept_waits-13", "lock-over-driver": "waits_destroyed", "mode-left": "waits_left-12",
            "named-context-ignored": "waits_contexts", "ends-confused": "random_waits-12"}
# The name; the file; a text that is there once, and another in its place; perhaps more of these.
FAULTS = (
    # Calls do not wait for copies that p2pshim has made direct.
    ("lost-waits", "src/call/waits.rs", "while WAITS.are_pending(of) {", "while WAITS.are_pending(of) && captures::may_be_under_way() {"),
    # A copy is announced once it was made: a call of another thread that waits in between does not find it.
    ("announced-late", "src/call/run.rs", "    let announced = waits::before(call, &decision);\n", "",
     "    let ret = staged.unwrap_or_else(real);\n", "    let ret = staged.unwrap_or_else(real);\n    let announced = waits::before(call, &decision);\n"),
    # No event is recorded behind a copy.
    ("record-dropped", WAITS, "let is_recorded = stream.record(driver, entry[EVENT].load(Acquire) as usize);", "let is_recorded = stream != Stream::Created(usize::from(driver.is_device_memory(0)));"),
    # A copy whose call was left is not recorded by who waits.
    ("left-forgotten", WAITS, "if pending.state & ANNOUNCED == 0 {", "if pending.state & ANNOUNCED == 0 || thread != u32::MAX {"),
    # Whoever records an announcement does not begin another turn: the call that it belongs to takes back another one's.
    ("wrong-generation", WAITS, "let next = (pending.state & !ANNOUNCED | TAKEN).wrapping_add(TURN);", "let next = pending.state & !ANNOUNCED | TAKEN;"),
    # The event of a destroyed stream, or of a graph, serves another while its copy is under way.
    ("event-given-away", WAITS, "if !self.entries.is_pending(number) && state & ANNOUNCED == 0 {", "if state & ANNOUNCED == 0 {"),
    ("graph-event-given-away", "src/policy/graph.rs", "if !waits.add_graph(exec, *event, *endpoints) {", "waits.give_back(*event);\n            if !waits.add_graph(exec, *event, *endpoints) {"),
    # Of more than 1,024 entries nobody knows that they are under way.
    ("limit-of-entries", ENTRIES, "let Some((block, bit)) = self.bit(number) else { return };", "let Some((block, bit)) = self.bit(number).filter(|_| number < 1024) else { return };"),
    # A lock is held while the driver makes an event.
    ("lock-over-driver", WAITS, "let spare = os::lock(&self.locked).own(context).and_then(|(_, own)| own.spare.pop());\n        spare.or_else", "let mut locked = os::lock(&self.locked);\n        let spare = locked.own(context).and_then(|(_, own)| own.spare.pop());\n        spare.or_else"),
    # The thread's capture mode is another while a call waits.
    ("mode-left", "src/call/waits.rs", "while relaxed(&|| Some(waits::is_over(mark))) == Some(false) {", "while RealDriver.relaxed(|| waits::wait(mark)).is_none() {"),
    # A copy of memory of a pool is not work of the context that it names.
    ("named-context-ignored", "src/policy/access/mod.rs", "if place.has_rights() { named.context() } else { place.of as usize }", "if place.has_rights() { 0 } else { place.of as usize }"),
    # Copies from one context are one, wherever they go.
    ("ends-confused", ENTRIES, "    ends_of(pair) == ends\n", "    ends_of(pair)[0] == ends[0]\n"),
    # The first instructions of hooks cannot be moved.
    ("unpatchable", "src/machine/x86_64/trampoline.s", ".rept 4\nmov eax, 0\n.endr\n", ""),
    # Beside a free what is remembered decides that a copy is left to CUDA.
    ("blocked-beside-frees", "src/policy/access/mod.rs", "if self.blocks() {\n            return None;\n        }\n        let (src, dst) = (self.cache", "let (src, dst) = (self.cache",
     ".filter(|_| !self.blocks())", ""),
    ("frees-not-seen", "src/objects/memory.rs", "                self.forget_pieces(&range);\n                true\n", "                true\n"),
    # A source that is to be read during the call is read later.
    ("attributes-ignored", "src/call/read.rs", "attributes.is_some_and(|attributes| is_put_off(attributes.order, attributes.flags))\n        }\n        _ => true", "attributes.is_some()\n        }\n        _ => true"),
    # Look-ups do not go through a library behind that wraps dlsym.
    ("neighbours-skipped", "src/real/loader.rs", 'Wanted { name: c"dlsym", version: None }.next_global().or(real_dlsym().map(|real| real as *mut c_void))', "real_dlsym().map(|real| real as *mut c_void)"),
    # Work that is done once is done on any stack.
    ("deep-stacks", "src/os/stack.rs", "keep_errno(|| has_room_below(here))", "keep_errno(|| has_room_below(here) || true)"),
    # A time-out is taken for a broken path.
    ("late-is-broken", "src/policy/access/outcome.rs", "Failure::Hung { .. } => (Verification::Late, Why::Broken)", "Failure::Hung { .. } => (Verification::Broken, Why::Broken)"),
    # State is not restored: the context that was current, and what a restored process knows of its paths.
    ("context-left", "src/real/driver/contexts.rs", "let restore = || {\n        if !is_current {", "let restore = || {\n        if is_current {"),
    ("restored-remembers", "src/policy/access/verified.rs", "        self.verifications.clear();\n", ""),
    # The process holds more and more, and records are lost.
    ("memory-leaks", "src/call/waits.rs", FIRST, FIRST + "    std::mem::forget(vec![1_u8; 1 << 14]);\n"),
    ("descriptors-leak", "src/call/waits.rs", FIRST, FIRST + '    std::mem::forget(std::fs::File::open("/dev/null"));\n'),
    ("streams-leak", "src/policy/staging/rings.rs", "rings.keep(*ring, |context| !has_ended(context));", "drop(rings);"),
    ("records-lost", "src/call/recording.rs", "let begun = begin().or_else(|| if has_more_room(trace, thread) { begin() } else { None });", "let begun = begin();\n    if begun.is_none() && has_more_room(trace, thread) {\n        return None;\n    }"),
)


def built(name):
    """The library with the fault. It is built for a short time, not for speed."""
    variables = {"CARGO_TARGET_DIR": str(BUILT), "CARGO_INCREMENTAL": "1", "CARGO_PROFILE_RELEASE_LTO": "off", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "64"}
    command = [os.environ.get("CARGO", "cargo"), "build", "--quiet", "--release", "-p", "p2pshim"]
    done = subprocess.run(command, cwd=COPY, env=os.environ | variables, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{name} does not build:\n{done.stderr[-2000:]}")
    return BUILT / "release/libp2pshim.so"


def gauntlet(asked, words, variables):
    command = [ROOT / "c-tests/gpu/gauntlet.py", "--stop", "--seed", str(asked.seed), "--jobs", str(asked.jobs), *map(str, words)]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True)


def find(asked, name, place, *changes):
    """Whether the gauntlet finds it."""
    file, begun = COPY / place, time.monotonic()
    text = changed = file.read_text()
    for old, new in zip(changes[::2], changes[1::2]):
        changed = changed.replace(old, new)
    file.write_text(changed)
    library = built(name)
    # Written anew, so that cargo sees that it has changed.
    file.write_text(text)
    took = time.monotonic() - begun
    # Small rounds find most faults; what grows shows in whole ones.
    others = [other for other, *_ in OTHERS]
    shown = [["--brief", "--rounds", 1, "--seed", 3 * others.index(SHOWN_BY[name]) + 2]] if name in SHOWN_BY else []
    for words in (*shown, ["--brief", "--rounds", BRIEF], ["--minutes", asked.minutes]):
        done = gauntlet(asked, words, {"P2PSHIM_LIB": str(library)})
        found = re.search(r"^found by (.*)$", done.stdout, re.M)
        if found:
            break
    if found and "--minutes" in words:
        # The same round with the library as it is: else it may be the round that fails.
        seed = re.match(r"seed (\d+)", found[1])[1]
        control = gauntlet(asked, ["--rounds", 1, "--seed", seed], {})
        found = found if control.returncode == 0 else None
        done = done if found else control
    how = re.search(r"^FAILED seed \d+: (.*)\n *(.*)$", done.stdout, re.M)
    said = f"found by {found[1]}: {how[1]}: {how[2][:160]}" if found and how else f"NOT FOUND: {(done.stdout + done.stderr).strip().splitlines()[-1:]}"
    print(f"{name}: {said} (built in {took:.0f} s)", flush=True)
    return bool(found)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--minutes", type=float, default=2)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("--check", action="store_true")
    arguments.add_argument("names", nargs="*")
    asked = arguments.parse_args()
    gone = [f"{name}: {old!r} is in {place} {count} times" for name, place, *changes in FAULTS for old in changes[::2]
            if (count := (ROOT / place).read_text().count(old)) != 1]
    if gone or asked.check:
        sys.exit("\n".join(gone) or 0)
    if unknown := [name for name in asked.names if name not in [fault[0] for fault in FAULTS]]:
        sys.exit(f"no such fault: {', '.join(unknown)}")
    wanted = [fault for fault in FAULTS if not asked.names or fault[0] in asked.names]
    # Else a fault would be found that is not there.
    control = gauntlet(asked, ["--brief", "--rounds", BRIEF], {})
    if control.returncode != 0:
        sys.exit(f"without any fault:\n{control.stdout[-2000:]}{control.stderr[-500:]}")
    shutil.copytree(ROOT, COPY, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT), dirs_exist_ok=True)
    found = [find(asked, *fault) for fault in wanted]
    print(f"{sum(found)} of {len(found)} faults found", flush=True)
    shutil.rmtree(COPY)
    sys.exit(0 if found and all(found) else 1)


if __name__ == "__main__":
    main()
