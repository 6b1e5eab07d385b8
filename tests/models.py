#!/usr/bin/env python3
"""models.py [NAME…]: runs the models of tests/models, says how many orders each tries, and shows that they can fail.

Each fault below weakens an order, or leaves out a step, in what they compile of the library. The models have to find it. With names only
these faults are put in; `models.py none` puts none in, `models.py few` neither, and leaves out the models that take longest; `models.py --build` only builds
them, and `models.py --check` only says whether each place is there. Exit status 1 if a model fails, or a fault is not found. Needs loom, of crates.io.
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
ROOM, SEGMENT, LEFT, CLOCK = (f"trace/src/writer/{name}.rs" for name in ("room", "segment", "left", "clock"))
GENERATIONS, PAST = "src/objects/generations.rs", "src/objects/past.rs"
WAITS, ENTRIES, ENTRY = "src/policy/waits.rs", "src/policy/waits/entries.rs", "src/machine/aarch64/mod.rs"
# The models that a file's faults are looked for by; otherwise all of threads.
BY = {FRAME: "signals::", SEGMENT: "signals::", ENTRY: "signals::", WAITS: "waits::", ENTRIES: "waits::", PAST: "freed_was_not", GENERATIONS: "decision", LEFT: "rest_of", CLOCK: "clocks"}
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
    ("end of an owner stored relaxed", GENERATIONS, "usize::from(owner)).into_iter().for_each(|generation| _ = generation.fetch_add(1, AcqRel));", "usize::from(owner)).into_iter().for_each(|generation| _ = generation.fetch_add(1, std::sync::atomic::Ordering::Relaxed));"),
    ("generation loaded relaxed", GENERATIONS, "generation.load(Acquire)", "generation.load(std::sync::atomic::Ordering::Relaxed)"),
    ("end of a free without its beginning", PAST, "to.store(end.max(start.saturating_add(1)), Release);", "to.store(end.max(start.saturating_add(1)), Relaxed);"),
    ("beginning of a free before its end goes", PAST, "            fence(Release);\n", ""),
    ("end of a free not looked at again", PAST, "is_within && to.load(Relaxed) == end", "is_within"),
    ("end of a free looked at again too soon", PAST, "            fence(Acquire);\n", ""),
    ("announcement not ordered before its mark", ENTRIES, "if block[PENDING].load(SeqCst) & bit == 0 {\n            pair", "if block[PENDING].load(Acquire) & bit == 0 {\n            pair"),
    ("mark cleared by an old state", WAITS, "entry[STATE].load(SeqCst) == pending.state", "entry[STATE].load(Acquire) == pending.state"),
    ("mark cleared unseen", WAITS, "if is_as_it_was() || block[PENDING]", "if true || block[PENDING]"),
    ("recorded unseen", WAITS, "&& entry[RECORDED].load(SeqCst) == pending.recorded", ""),
    ("record after its announcement goes", WAITS, "            entry[RECORDED].fetch_add(1, SeqCst);\n            self.withdraw(announced);", "            self.withdraw(announced);\n            entry[RECORDED].fetch_add(1, SeqCst);"),
    ("rest of a chunk left relaxed", LEFT, "word.compare_exchange(0, left, Release, Relaxed)", "word.compare_exchange(0, left, Relaxed, Relaxed)"),
    ("rest of a chunk taken relaxed", LEFT, "word.swap(0, Acquire)", "word.swap(0, Relaxed)"),
    ("rest of a chunk taken by two", LEFT, "word.swap(0, Acquire)", "{\n            let left = word.load(Acquire);\n            word.store(0, Relaxed);\n            left\n        }"),
    ("comparison stored relaxed", CLOCK, "self.u64_at(at).store(ticks, Release);", "self.u64_at(at).store(ticks, Relaxed);"),
    ("entry of two calls", ENTRY, "self.1.store(entry.link, Relaxed);", "self.1.store(self.1.load(Relaxed).max(entry.link), Relaxed);"),
    ("findings in one place", SEGMENT, "match finding.compare_exchange(0, number, Relaxed, Relaxed) {", "match Ok::<u8, u8>({ finding.store(number, Relaxed); 0 }) {"),
)


# These take longest: parts of the names of tests.
LONG = ("freed_beside_a_question", "goes_to_another", "owner_that_ends", "two_threads_keep", "routes_that_two")


def cargo_test(*arguments, fault=(), **settings):
    """Builds the models, with a fault in them, and runs them."""
    variables = {"CARGO_TARGET_DIR": str(ROOT / "target/models"), "RUSTFLAGS": "--cfg loom", "P2PSHIM_MODELS_FAULT": "\x1f".join(fault)}
    command = [os.environ.get("CARGO", "cargo"), "test", "--release", "--quiet", *arguments]
    return subprocess.run(command, cwd=ROOT / "tests/models", env=os.environ | variables, text=True, **settings)


def run(*fault, without=()):
    """What the models print, and whether they hold: with a fault, those that compile its file."""
    names = [BY.get(fault[0], "threads::")] if fault else []
    done = cargo_test(*names, "--", "--nocapture", *(word for name in without for word in ("--skip", name)), fault=fault, capture_output=True)
    return done.stdout, done.stderr, done.returncode == 0


def main():
    names = sys.argv[1:]
    if names == ["--build"]:
        sys.exit(cargo_test("--no-run").returncode)
    if names == ["--check"]:
        gone = [name for name, file, old, _ in FAULTS if (ROOT / file).read_text().count(old) != 1]
        sys.exit(f"not there once: {', '.join(gone)}" if gone else 0)
    if unknown := [name for name in names if name not in ["none", "few", *(fault[0] for fault in FAULTS)]]:
        sys.exit(f"no such fault: {', '.join(unknown)}")
    since = time.monotonic()
    out, err, holds = run(without=LONG if names == ["few"] else ())
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
    if wanted:
        print(f"{len(wanted) - len(missed)} of {len(wanted)} faults found; {time.monotonic() - since:.0f} s.")
    sys.exit(bool(missed))


main()
