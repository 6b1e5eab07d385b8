"""Waits that programs rely on while the driver stages their copies: with the shim, which makes the copies direct, they are the same."""

import re
import sys
from concurrent.futures import ThreadPoolExecutor

from harness import HERE, Run, at_once, build, judge, report

PROGRAM = "cases/random_waits.c"
SEEDS = 300
FIRST = 200_000
AT_A_TIME = 8  # programs, each plain and preloaded
UNSTEADY = "unsteady"
MOST_UNSTEADY = 0.1  # of all programs
BEFORE = 4  # lines shown before the one that differs
THREADS_PROGRAM = "cases/random_threads.c"
THREADS_SEEDS = 100
THREADS_AT_A_TIME = 6  # with up to 20 threads each
THREADS_SECONDS = 40
THREADS_ROUNDS = 60
PRELOADED = {"preload": True, "trace": False, "P2PSHIM_LOG": "error"}
# The table of calls: these rows of each copy, and all rows of this one. All if checks are named.
OPERATIONS = ("synchronize", "free_far", "free_near", "free_spare", "destroy_then_free_far", "reset_primary", "unload_module",
              "free_host", "record_event_of_context")
ALL_OF = "peer_async"
# docs/LIMITS.md: not kept.
LEFT_OUT = ("get_function_of_kernel", "get_module_of_library", "first_launch_of_library", "unload_library_elsewhere")
ROUNDS = 1000
# Without the shim a copy's call waits if some hundred streams have staged copies under way (two H200, driver 580.159.04): 200 is few enough.
STREAMS_PLAIN = 200
STREAMS = 1100
# Programs that are right by calls that wait, with how they are run. Simulated GPUs run those that fill a queue or need four devices, too.
KEPT = (
    *(("kept_waits", mode, count, what) for mode, count, what in (
        ("graphs", 1030, "spare"), ("graphs", 1030, "destination"), ("launched", 1018, "destination"), ("launched", 1030, "destination"),
        ("streams", STREAMS_PLAIN, "synchronize"))),
    ("waits_churn", "pools", 500), ("waits_churn", "owners", 100),
    *(("waits_left", "wait", how, *capture) for how in ("jump", "return", "cancel") for capture in ((), ("capture",))),
    ("waits_contexts",),
)
TIMES_KEPT = 20
# Busy processes put the verification of a pair off: here it is made direct at once.
AT_ONCE = {"P2PSHIM_VERIFY": "off"}
SPINNING = 100


def first_difference(one, other):
    """The first line that differs, with some before it, or how the runs ended."""
    lines, others = one.out.splitlines(), other.out.splitlines()
    for number, (line, found) in enumerate(zip(lines, others)):
        if line != found:
            before = "".join(f"             {text}\n" for text in lines[max(0, number - BEFORE):number])
            return f"{before}  plain:     {line}\n  preloaded: {found}"
    return f"  plain:     {one.ended()}\n  preloaded: {other.ended()}"


def problem(program, seed, plain, shim):
    """How a program differs with the shim, in words. Of one that is not the same twice without it, nothing can be said."""
    if plain.out == shim.out and plain.status == shim.status:
        return None
    again = at_once(*[([program, seed], {"trace": False})] * 4)
    is_right = plain.status == 0 and "WRONG" not in plain.out
    if not is_right or any(run.out != plain.out for run in again):
        return UNSTEADY
    return f"`random_waits {seed}` differs:\n{first_difference(plain, shim)}"


def by_staging(runs):
    """How many calls used memory that only staging orders."""
    lines = [line for run in runs for line in run.out.splitlines() if line.startswith("done: ")]
    return sum(int(line.removesuffix(" by staging").rsplit(", ", 1)[1]) for line in lines)


def random_waits():
    for number, runtime in enumerate(("static", "shared")):
        program = build(PROGRAM, runtime)
        first = FIRST + number * 1000
        seeds = range(first, first + SEEDS // 2)
        problems, uses, unsteady = [], 0, 0
        for start in range(0, len(seeds), AT_A_TIME):
            block = seeds[start:start + AT_A_TIME]
            runs = at_once(*(([program, seed], how) for seed in block for how in ({"trace": False}, PRELOADED)))
            found = [problem(program, seed, plain, shim) for seed, plain, shim in zip(block, runs[::2], runs[1::2])]
            problems += [text for text in found if text and text != UNSTEADY]
            unsteady += found.count(UNSTEADY)
            uses += by_staging(runs[::2])
        judge(not problems and uses > 0 and unsteady <= MOST_UNSTEADY * len(seeds), f"random_waits, {runtime} runtime",
              f"{len(problems)} of {len(seeds)} programs:\n" + "\n".join(problems[:3]) if problems
              else f"{len(seeds) - unsteady} programs the same, with {uses} uses of memory that only staging orders; "
                   f"{unsteady} are not the same twice without the shim")


def threads_problem(program, seed):
    """How a program of threads differs with the shim, in words, and how many copies a call of it waits for. None for a slow one."""
    command, limit = [program, seed, THREADS_ROUNDS, 2], {"seconds": THREADS_SECONDS}
    plain = Run(command, **limit)
    if plain.status == "timeout":
        return None, 0
    if plain.status != 0:
        return f"without the shim {plain.ended()}", 0
    rounds = sum(map(int, re.findall(r": (\d+) rounds$", plain.out, re.M)))
    # It has more time, and a second try: others run beside it.
    tries = (Run(command, **PRELOADED, seconds=2 * THREADS_SECONDS) for _ in range(2))
    shim = next((run for run in tries if run.status != "timeout"), None)
    if shim is None:
        return f"random_threads {seed} does not end with the shim; plain it does", rounds
    if (plain.out, plain.status) == (shim.out, shim.status):
        return "", rounds
    wrong = [line for line in shim.out.splitlines() if line.startswith("WRONG")]
    return "\n".join(wrong[:3]) or shim.ended(), rounds


def random_threads():
    """Programs whose threads rely on waits, while others change what p2pshim remembers of copies: nothing is wrong, plain and with the shim."""
    for number, runtime in enumerate(("static", "shared")):
        program = build(THREADS_PROGRAM, runtime)
        first = FIRST + number * 1000
        seeds = range(first, first + THREADS_SEEDS // 2)
        with ThreadPoolExecutor(THREADS_AT_A_TIME) as pool:
            found = list(pool.map(lambda seed: threads_problem(program, seed), seeds))
        problems = [text for text, _ in found if text]
        slow, rounds = sum(text is None for text, _ in found), sum(rounds for _, rounds in found)
        judge(not problems and rounds > 0 and slow <= MOST_UNSTEADY * len(seeds), f"random_threads, {runtime} runtime",
              f"{len(problems)} of {len(seeds)} programs:\n" + "\n".join(problems[:3]) if problems
              else f"{len(seeds) - slow} programs the same, with {rounds} copies that a call waits for; "
                   f"{slow} do not end in {THREADS_SECONDS} s without the shim")


def cells(gpus):
    """Cells of the table of measured waits that these GPUs can show: copy, operation, current device, result."""
    lines = (HERE / "implicit_waits.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")][1:]
    kept = [(copy, operation, current, result) for operation, *results, copies in rows if operation not in LEFT_OUT
            for copy in copies.split() for current, result in zip("012", results) if result != "-"]
    chosen = [row for row in kept if len(sys.argv) > 1 or row[0] == ALL_OF or row[1] in OPERATIONS]
    return [row for row in chosen if gpus > 2 or row[2] != "2" and "third" not in row[0] and "elsewhere" not in row[1]]


def implicit_waits(gpus):
    """Each call of the table, in a process of its own: it waits for the queued copy or not, as was measured plain."""
    programs = [build("cases/implicit_waits.c", runtime) for runtime in ("static", "shared")]
    rows, wrong = cells(gpus), []
    for start in range(0, len(rows), AT_A_TIME):
        block = rows[start:start + AT_A_TIME]
        commands = [[programs[(start + number) % 2], *row[:3], "kernel"] for number, row in enumerate(block)]
        runs = at_once(*((command, {**PRELOADED, **AT_ONCE}) for command in commands))
        for (copy, operation, current, wanted), run in zip(block, runs):
            found = run.out.strip().partition(": ")[2]
            # Two tries: a call that does not wait may have been late.
            if not found.startswith(wanted) and "skipped" not in found:
                again, = at_once((run.command, {**PRELOADED, **AT_ONCE, "IMPLICIT_WAITS_PATIENCE": "5000"}))
                found = again.out.strip().partition(": ")[2]
                if not found.startswith(wanted):
                    wrong.append(f"{copy} {operation} {current}: {found or again.ended()}; plain {wanted}")
    judge(not wrong, "implicit_waits", f"{len(wrong)} of {len(rows)} calls differ:\n" + "\n".join(wrong) if wrong
          else f"{len(rows)} calls wait, or do not, as they do plain")


def same_many_times(name, arguments):
    """How a program differs from itself without the shim, in one of many runs with it, or nothing."""
    command = [build(f"cases/{name}.c"), *arguments]
    plain, = at_once((command, {"trace": False}))
    if plain.status != 0:
        return f"plain {plain.ended()}"
    # More streams only where nothing is staged.
    is_direct = STREAMS_PLAIN in command
    command = [STREAMS if word == STREAMS_PLAIN else word for word in command]
    for start in range(0, TIMES_KEPT, AT_A_TIME):
        ways = [{**PRELOADED, **AT_ONCE} if is_direct or number % 2 else PRELOADED for number in range(start, min(start + AT_A_TIME, TIMES_KEPT))]
        for run in at_once(*((command, way) for way in ways)):
            if (run.out, run.status) != (plain.out, plain.status):
                return f"{' '.join(map(str, (name, *arguments)))}:\n{first_difference(plain, run)}"
    return None


def kept_waits():
    """Calls wait beside many graphs and streams, while others change owners, and after calls that were left: the output is that without."""
    wrong = [text for name, *arguments in KEPT if (text := same_many_times(name, arguments))]
    judge(not wrong, "kept_waits", f"{len(wrong)} of {len(KEPT)} programs differ:\n" + "\n".join(wrong) if wrong
          else f"{len(KEPT)} programs, each {TIMES_KEPT} times")


def scatter():
    """Programs that are right since calls wait for staged copies."""
    program = build("scatter.cu")
    for way in ("push", "pull"):
        plain, shim = at_once(([program, "all", way, ROUNDS // 20], {"trace": False}))[0], None
        shim, = at_once(([program, "all", way, ROUNDS], PRELOADED))
        counts = [int(count) for count in re.findall(r": (\d+) of \d+ sums wrong", shim.out)]
        judge(plain.status == 0 and shim.status == 0 and len(counts) == 7, f"scatter, {way}",
              f"{ROUNDS} rounds of {len(counts)} forms of copy, {sum(counts)} sums wrong" if shim.status == 0
              else f"plain {plain.ended()}; preloaded {shim.ended()}")


def spinning_often():
    """Kernels that wait for the host while copies are queued behind them, many times: none hangs."""
    program = build("spinning.cu")
    hung = []
    commands = [[program, kind] for kind in ("many", "large", "pool", "mapped")] * (SPINNING // 4)
    for start in range(0, len(commands), AT_A_TIME):
        runs = at_once(*((command, {**PRELOADED, "seconds": 60}) for command in commands[start:start + AT_A_TIME]))
        hung += [run.ended() for run in runs if run.status != 0]
    report("FAILED" if hung else "ok", "spinning_often", hung[0] if hung else f"{len(commands)} runs, none hangs")
