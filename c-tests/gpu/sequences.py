"""Random sequences on real GPUs, plain and preloaded, print the same: batches, graphs, captures, copies, pools and streams; and large
copies that the shim stages."""

import itertools

from harness import Run, at_once, build, judge

PROGRAM = "cases/random_graphs.c"
SEQUENCES = 500
FIRST = 80_000
PROCESSES = 4  # of each kind, at a time
LAST_STEPS = 3  # of a process that ends, shown
LEAST_KINDS = 34  # of steps that succeed: no device is reset here, launches in captures are refused, and children may not be set


def lines(run):
    return [line for line in run.out.splitlines() if line.startswith("sequence ")]


# A copy of a pool's memory whose rights have changed since its node was made is refused when a ready graph is updated (measured on H100): so
# pools are the program's own, or there are none.
WAYS = {"static": (["plain"], {}), "shared": ([], {"P2PSHIM_POOLS": "app"})}


def pair(program, way, first, count, *words):
    """The arguments of a plain and of a preloaded run."""
    more, variables = WAYS[way]
    command = [program, first, count, "real", *more, *words]
    return [(command, {}), (command, {"preload": True, "trace": False, "P2PSHIM_LOG": "error", "P2PSHIM_CAPTURE": "forward", **variables})]


def told(way, first, count):
    return " ".join([PROGRAM.removeprefix("cases/").removesuffix(".c"), str(first), str(count), "real", *WAYS[way][0], "steps"])


def story(program, way, block, seed):
    """The first step that differs or the last of all, of the sequence alone or else of its whole process, and how to see it again."""
    for first in (seed, block):
        count = seed - first + 1
        plain, shim = at_once(*pair(program, way, first, count, "steps"))
        both = zip(plain.out.splitlines(), shim.out.splitlines())
        differ = [(one, other) for one, other in both if one != other]
        if differ or plain.status != shim.status:
            one, other = differ[0] if differ else (plain.ended(), shim.ended())
            return f"`{told(way, first, count)}`, plain and with LD_PRELOAD:\n  plain:     {one}\n  preloaded: {other}"
        if plain.status != 0:
            steps = "\n".join(plain.out.splitlines()[-LAST_STEPS:])
            return f"`{told(way, first, count)}`, plain as with LD_PRELOAD:\n{steps}\n  {plain.err.strip()}"
    return f"`{told(way, seed, 1)}` and `{told(way, block, seed - block + 1)}` ended well"


def compare(program, way, block, plain, shim):
    """What is wrong with the sequences of a block, in words."""
    problems = []
    for seed, (one, other) in enumerate(zip(lines(plain), lines(shim)), block):
        if one != other:
            return [f"sequence {seed} differs: {story(program, way, block, seed)}"]
        if "WRONG" in one:
            problems.append(f"sequence {seed} is wrong in both runs: `{told(way, block, seed - block + 1)}`")
    if plain.status != 0 or shim.status != 0 or len(lines(plain)) != len(lines(shim)):
        seed = block + min(len(lines(plain)), len(lines(shim)))
        problems.append(f"sequence {seed} ends the process: {story(program, way, block, seed)}")
    return problems[:3]


def succeeded(runs):
    """How often each kind of step succeeded."""
    sums = {}
    for run in runs:
        for line in run.out.splitlines():
            if line.startswith("done: "):
                kind, count = line.removeprefix("done: ").removesuffix(" succeeded").rsplit(", ", 1)
                kind = kind.rsplit(" ", 1)[0]
                sums[kind] = sums.get(kind, 0) + int(count)
    return sums


def random_graphs():
    for number, runtime in enumerate(("static", "shared")):
        program = build(PROGRAM, runtime)
        each = SEQUENCES // 2 // PROCESSES + 1
        blocks = [FIRST + number * 1000 + process * each for process in range(PROCESSES)]
        runs = at_once(*(run for block in blocks for run in pair(program, runtime, block, each)))
        problems = []
        for block, plain, shim in zip(blocks, runs[::2], runs[1::2]):
            problems += compare(program, runtime, block, plain, shim)
        sums = succeeded(runs[::2])
        kinds = [kind for kind, count in sums.items() if count > 0]
        count = sum(len(lines(run)) for run in runs[::2])
        if len(kinds) < LEAST_KINDS and not problems:
            problems.append(f"did not succeed: {', '.join(sorted(sums.keys() - set(kinds)))}")
        judge(not problems, f"random_graphs, {runtime} runtime",
              "\n".join(problems) or f"{count} sequences the same; {sum(sums.values())} steps of {len(kinds)} kinds succeeded, "
              f"{sums.get('runtime launch', 0) + sums.get('driver launch', 0)} launches")


def graph_updated_later():
    """A graph that was instantiated before access was enabled can be changed, as plain."""
    for runtime in ("static", "shared"):
        program = build("cases/graph_updated_later.c", runtime)
        plain, shim = at_once(([program], {"trace": False}), ([program], {"preload": True, "trace": False}))
        judge(plain.status == 0 and (plain.out, plain.status) == (shim.out, shim.status), f"graph_updated_later, {runtime} runtime",
              f"plain {plain.ended()}; preloaded {shim.ended()}")


def other_process():
    """Memory that another process opens: the same with the shim, and a warning where access is denied, or refused where that is known."""
    program = build("cases/memory_of_another_process.c")
    for by, name in (([], "other_process"), (["mapped"], "other_process, mapped")):
        plain = Run([program, *by], trace=False)
        preloaded, denied = (Run([program, *by], preload=True, trace=False, **options) for options in ({}, {"P2PSHIM_DENY": "0-1"}))
        is_same = "the second process ends with 0" in plain.out and plain.out == preloaded.out
        if by:
            said = denied.err.count("memory of device 1 that was imported is not mapped for device 0")
            is_same = is_same and denied.out.endswith("the second process ends at once with 3\n")
        else:
            said = denied.err.count("was opened on device 0. If it lies on device 1, it is accessed though that is denied")
            is_same = is_same and plain.out == denied.out
        judge(is_same and said == 1 and not preloaded.err, name,
              f"{plain.out.count(chr(10))} lines the same, said {said} times" if is_same
              else f"{plain.out!r} {preloaded.out!r} {denied.out!r} {plain.err[-300:]} {preloaded.err[-300:]}")


def between_processes():
    """Memory that one process owns and another one opens, in every way that CUDA has: the same with the shim, and what each is told."""
    program = build("cases/between_processes.c", "static")
    for transport, direction, visibility in itertools.product(("ipc", "vmm", "pool"), ("push", "pull"), ("both", "each")):
        case = [program, transport, direction, visibility]
        plain, preloaded = Run(case, trace=False), Run(case, preload=True, trace=False)
        is_same = plain.status == 0 and "the owner ends with 0, the opener with 0" in plain.out and plain.out == preloaded.out
        judge(is_same, f"between_processes, {' '.join(case[1:])}", repr(plain.out) if is_same
              else f"plain {plain.ended()} {plain.out!r}, preloaded {preloaded.ended()} {preloaded.out!r}")


def asks_like():
    """How PyTorch, llama.cpp and vLLM ask and copy: the same with the shim; with access denied their data is right too."""
    for runtime in ("static", "shared"):
        program = build("cases/asks_like.c", runtime)
        for who in ("pytorch", "llama", "vllm"):
            plain = Run([program, who], trace=False)
            preloaded, denied = (Run([program, who], preload=True, trace=False, **options) for options in ({}, {"P2PSHIM_DENY": "0-1"}))
            is_told = "0 can access 1: 0" in denied.out and (who == "vllm" or "24 of 24 copies right" in denied.out)
            is_same = plain.status == 0 and plain.out == preloaded.out and not preloaded.err
            judge(is_same and is_told, f"asks_like, {who}, {runtime} runtime", f"plain {plain.out!r}, denied {denied.out!r}"
                  if is_same else f"plain {plain.ended()}, preloaded {preloaded.ended()} {preloaded.out!r}")


def freed_early():
    """Memory of a copy that the shim stages is taken away before anybody has waited for the copy: it arrives."""
    program = build("cases/freed_early.c")
    for form in ("free", "unmap"):
        plain, staged = at_once(([program, form], {}), ([program, form], {"preload": True, "trace": True, "P2PSHIM_ACCESS": "off",
                                                                         "P2PSHIM_STAGING": "always"}))
        by_us = staged.trace.count("staged by p2pshim")
        judge(staged.out.startswith("0 of 10 ") and by_us >= 10, f"freed_early, {form}",
              f"plain {plain.out.strip() or plain.ended()}; staged {staged.out.strip() or staged.ended()}, {by_us} by the shim")


def blocked_stress():
    """Threads that copy in every form, free, map and destroy, where the pair is denied: the data of each copy arrives."""
    for runtime in ("static", "shared"):
        program = build("cases/blocked_stress.c", runtime)
        command = lambda seed: [program, seed, 32, 200, "real"]
        plain, = at_once((command(FIRST), {"trace": False}))
        judge(plain.status == 0, f"blocked_stress, {runtime} runtime, plain", plain.out.strip() or plain.ended())
        for option in ({"P2PSHIM_DENY": "0-1"}, {"P2PSHIM_ACCESS": "off"}):
            denied = {"preload": True, "trace": False, **option}
            for seed in range(FIRST, FIRST + 4):
                run, = at_once((command(seed), denied))
                text = run.out.strip() or run.ended()
                judge(run.status == 0 and "P2P-data-blocked" not in run.err, f"blocked_stress {seed}, {runtime} runtime, {option}", text)


def staged_copies():
    """Large copies without access, which the shim stages: same bytes, no call waits, and a device that is reset takes no copy along."""
    options = {"preload": True, "trace": False, "P2PSHIM_ACCESS": "off", "P2PSHIM_STAGING": "always"}
    for number, runtime in enumerate(("static", "shared")):
        program = build("cases/staged_copies.c", runtime)
        each = SEQUENCES // 2 // PROCESSES + 1
        blocks = [FIRST + number * 1000 + process * each for process in range(PROCESSES)]
        words = [[program, block, each, "real"] for block in blocks]
        by_whom = [{**options, "P2PSHIM_LOG": "error", "P2PSHIM_STAGING": value} for value in ("always", "auto")]
        runs = at_once(*((command, how) for command in words for how in ({}, *by_whom)))
        problems = [run.ended() for run in runs if run.status != 0]
        for plain, *staged in zip(*(runs[who::3] for who in range(3))):
            for run in staged:
                problems += [f"plain {one!r}, staged {other!r}" for one, other in zip(lines(plain), lines(run), strict=True) if one != other]
        count = sum(len(lines(run)) for run in runs[::3])
        judge(not problems, f"staged_copies, {runtime} runtime",
              "\n".join(problems[:3]) or f"{count} sequences the same, staged by the shim and by whoever is faster")
        held, ends, many = at_once(([program, "time"], options), ([program, "ends"], {**options, "trace": True}),
                                   ([program, "many", 100_000, 30], options))
        judge(many.status == 0, f"staged_copies, {runtime} runtime, many", many.out.strip().replace("\n", "; ") or many.ended())
        by_us = ends.trace.count("staged by p2pshim")
        judge("returned at once\ndata is right" in held.out and "all data is right" in ends.out and by_us >= 20,
              f"staged_copies, {runtime} runtime, held up and reset", f"{held.out.strip()!r}; {ends.out.strip()!r}, {by_us} copies staged by the shim"
              if held.status == 0 and ends.status == 0 else f"{held.ended()} {ends.ended()}")
