#!/usr/bin/env python3
"""models.py [NAME…]: runs the models of tests/models, says how many orders each tries, and shows that they can fail.

Each fault below weakens an order, or leaves out a step, in what they compile of the library. The models have to find it. With names only
these faults are put in; `models.py none` puts none in, `models.py --check` only says whether each place is there. Exit status 1 if a model fails, or a fault is not found. Needs loom, of crates.io.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INDEX, MAP = "src/objects/index.rs", "src/objects/map.rs"
MEMORY, ROUTE, RINGS, FRAME = "src/objects/memory.rs", "src/real/route.rs", "src/policy/staging/rings.rs", "src/call/frame.rs"
ROOM, SEGMENT = "trace/src/writer/room.rs", "trace/src/writer/segment.rs"
# The name; the file; a text that is there once, and another in its place.
FAULTS = (
    ("entry without a version", MEMORY, "let is_whole = version & 1 == 0 && self.version.load(Relaxed) == version;", "let is_whole = true;"),
    ("changes not seen", MEMORY, "self.changes.fetch_add(1, AcqRel);", ""),
    ("end of an owner not seen", MEMORY, "self.owners.end(owner);", ""),
    ("generation read late", MEMORY, "self.insert_piece(start, bits, &range, place, generation);", "self.insert_piece(start, bits, &range, place, self.owners.of(place.owner));"),
    ("answers not looked at again", MEMORY, "if self.now() == since {", "if true {"),
    ("answer written beside a free", MEMORY, "self.is_being_written.load(Acquire) || self", "false && self.is_being_written.load(Acquire) || self"),
    ("first piece pushed out", MEMORY, "self.forget_pieces(&before);", ""),
    ("row without a generation", MAP, "(row[KEY].load(Relaxed) == key).then_some((key & HANDLE, value))", "Some((key & HANDLE, value))"),
    ("key before its word", MAP, "row[LINK].store(u64::from(value) << 32, Release);\n        row[KEY].store((row[KEY].load(Relaxed) & !HANDLE) | handle, Release);", "row[KEY].store((row[KEY].load(Relaxed) & !HANDLE) | handle, Release);\n        row[LINK].store(u64::from(value) << 32, Release);"),
    ("chains not looked at again", INDEX, "if found.is_some() || changes & 1 == 0 && self.changes.load(Relaxed) == changes {", "if true {"),
    ("growth not noted", INDEX, "self.change(|| self.grow(size, &hash_of));", "self.grow(size, &hash_of);"),
    ("row taken out unnoted", INDEX, "self.change(|| before.set(next.load(Relaxed) as u32));", "before.set(next.load(Relaxed) as u32);"),
    ("table stored relaxed", "src/os/table.rs", "place.compare_exchange(there, key | value << KEY, AcqRel, Relaxed)", "place.compare_exchange(there, key | value << KEY, Relaxed, Relaxed)"),
    ("route not published", ROUTE, "entry.real.store(real, Release);", "entry.real.store(real, Relaxed);"),
    ("slot claimed beside routes", ROUTE, "slot.0.compare_exchange(ptr::null_mut(), Slot::BY_CALLER, AcqRel, Acquire)", "slot.0.compare_exchange(Slot::BY_CALLER, Slot::BY_CALLER, AcqRel, Acquire)\n            && !holder.is_null()"),
    ("slot claimed twice", ROUTE, "match self.0.compare_exchange(ptr::null_mut(), real, AcqRel, Acquire) {", "match Ok::<_, *mut c_void>(self.0.store(real, Relaxed)) {"),
    ("room opened before it is mapped", ROOM, "self.ready.store(ready, Release);", "self.ready.store(ready, Relaxed);"),
    ("chunk taken by two", ROOM, "let taken = handed_out.fetch_update(SeqCst, Relaxed, |taken| (taken < ready).then_some(taken + 1));", "let taken = handed_out.load(SeqCst);\n        handed_out.store(taken + 1, SeqCst);\n        let taken = Some(taken).filter(|taken| *taken < ready).ok_or(());"),
    ("ring taken by two", RINGS, "let take = |entry: &mut Entry| is_free(entry).then(|| entry.is_taken = true);", "let take = |entry: &mut Entry| Some(entry.is_taken = true);"),
    ("ring asked before it is taken", RINGS, "if is_done {\n                entry.endpoints.clear();", "if true {\n                entry.endpoints.clear();"),
    ("memory of the host used by two", RINGS, "spare.map(|spare| rings.spare.swap_remove(spare))", "spare.map(|spare| rings.spare[spare])"),
    ("stream of two rings", RINGS, "*handle = left.map_or(0, |left| self.parts.swap_remove(left).1);", "*handle = left.map_or(0, |left| self.parts[left].1);"),
    ("frame put together by a handler", FRAME, "compiler_fence(SeqCst);\n        self.stack.store(frame.stack, Relaxed);", "self.stack.store(frame.stack, Relaxed);"),
    ("frame taken apart by a handler", FRAME, "self.stack.store(0, Relaxed);\n        compiler_fence(SeqCst);", "self.stack.store(0, Relaxed);"),
    ("record before what it says", SEGMENT, "State::Begun.number(), Release);\n        Some(OpenRecord(cell))", "State::Begun.number(), Relaxed);\n        Some(OpenRecord(cell))"),
    ("call returned before what it was", SEGMENT, "cell.state.store(kept | capture.number() << 2 | State::Done.number(), Release);", "cell.state.store(kept | capture.number() << 2 | State::Done.number(), Relaxed);"),
    ("chunk before whose it is", SEGMENT, "start.add(chunk::THREAD).cast::<u32>()", "(*start.cast::<AtomicU32>()).store(ChunkKind::Calls.number(), Release);\n            self.now();\n            start.add(chunk::THREAD).cast::<u32>()"),
    ("record taken in two steps", SEGMENT, "let word = unsafe { machine::add_unlocked(self.next.as_ptr(), step) };", "let word = self.next.load(Relaxed);\n        self.next.store(word.wrapping_add(step), Relaxed);\n        let _ = || unsafe { machine::add_unlocked(self.next.as_ptr(), step) };"),
    ("calls of a handler left open", SEGMENT, "self.open.iter().zip(before).for_each(|(open, before)| open.store(before, Relaxed));", "let _ = before;"),
    ("room of a chunk not counted", SEGMENT, "segment.room.store(first.wrapping_add(stretch.records), Relaxed);", ""),
    ("wait before what it is", SEGMENT, "slot.state.store(State::Begun.number(), Release);", "slot.state.store(State::Begun.number(), Relaxed);"),
    ("findings in one place", SEGMENT, "match finding.compare_exchange(0, number, Relaxed, Relaxed) {", "match Ok::<u8, u8>({ finding.store(number, Relaxed); 0 }) {"),
)


def run(*fault):
    """What the models print, and whether they hold: with a fault, those that compile its file."""
    variables = {"CARGO_TARGET_DIR": str(ROOT / "target/models"), "RUSTFLAGS": "--cfg loom", "P2PSHIM_MODELS_FAULT": "\x1f".join(fault)}
    command = [os.environ.get("CARGO", "cargo"), "test", "--release", "--quiet", *(["signals" if fault[0] in (FRAME, SEGMENT) else "threads"] if fault else []), "--", "--nocapture"]
    done = subprocess.run(command, cwd=ROOT / "tests/models", env=os.environ | variables, capture_output=True, text=True)
    return done.stdout, done.stderr, done.returncode == 0


def main():
    names = sys.argv[1:]
    if names == ["--check"]:
        gone = [name for name, file, old, _ in FAULTS if (ROOT / file).read_text().count(old) != 1]
        sys.exit(f"not there once: {', '.join(gone)}" if gone else 0)
    if unknown := [name for name in names if name not in ["none", *(fault[0] for fault in FAULTS)]]:
        sys.exit(f"no such fault: {', '.join(unknown)}")
    since = time.monotonic()
    out, err, holds = run()
    tried = re.findall(r"MODEL +(\d+) orders +([\d.]+) s  (.*)", out)
    for orders, seconds, name in tried:
        print(f"{int(orders):>9,} orders {seconds:>6} s  {name}")
    if not holds or not tried:
        sys.exit(f"{out[-6000:]}{err[-3000:]}\nA model fails.")
    print(f"{len(tried)} models hold: {sum(int(orders) for orders, *_ in tried):,} orders in {time.monotonic() - since:.0f} s.")
    missed = []
    wanted = [fault for fault in FAULTS if not names or fault[0] in names]
    for name, *fault in wanted:
        out, err, holds = run(*fault)
        found = sorted(set(re.findall(r"^test (\S+) \.\.\. FAILED|^(\S+::\S+) --- FAILED", out, re.M)))
        by = ", ".join(one or other for one, other in found)
        print(f"{'found' if by else 'NOT FOUND'}: {name}" + (f", by {by}" if by else ""))
        if not by:
            missed.append(name)
            print("" if holds else err[-2500:])
    print(f"{len(wanted) - len(missed)} of {len(wanted)} faults found; {time.monotonic() - since:.0f} s.")
    sys.exit(bool(missed))


main()
