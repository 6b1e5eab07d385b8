"""Random programs on real GPUs that rely on what calls wait for while the driver stages copies: plain and preloaded they print the same."""

from harness import at_once, build, judge

PROGRAM = "cases/random_waits.c"
SEEDS = 300
FIRST = 200_000
AT_A_TIME = 6  # programs, each plain and preloaded
BEFORE = 4  # lines shown before the one that differs
PRELOADED = {"preload": True, "trace": False, "P2PSHIM_LOG": "error"}


def first_difference(one, other):
    """The first line that differs, with some before it, or how the runs ended."""
    lines, others = one.out.splitlines(), other.out.splitlines()
    for number, (line, found) in enumerate(zip(lines, others)):
        if line != found:
            before = "".join(f"             {text}\n" for text in lines[max(0, number - BEFORE):number])
            return f"{before}  plain:     {line}\n  preloaded: {found}"
    return f"  plain:     {one.ended()}\n  preloaded: {other.ended()}"


def problem(program, seed, plain, shim):
    """What is wrong with a program, in words."""
    name = f"`random_waits {seed}`"
    wrong = [line for line in plain.out.splitlines() if "WRONG" in line]
    if wrong:
        return f"{name}: plain, the program expects something else: {wrong[0]}"
    if plain.status != 0:
        return f"{name} fails plain: {plain.ended()}"
    if plain.out == shim.out and shim.status == 0:
        return None
    again, = at_once(([program, seed], {"trace": False}))
    if again.out != plain.out:
        return f"{name}: two plain runs differ:\n{first_difference(plain, again)}"
    return f"{name} differs:\n{first_difference(plain, shim)}"


def by_staging(runs):
    """How many calls used memory that only staging orders."""
    lines = [line for run in runs for line in run.out.splitlines() if line.startswith("done: ")]
    return sum(int(line.removesuffix(" by staging").rsplit(", ", 1)[1]) for line in lines)


def random_waits():
    for number, runtime in enumerate(("static", "shared")):
        program = build(PROGRAM, runtime)
        first = FIRST + number * 1000
        seeds = range(first, first + SEEDS // 2)
        problems, uses = [], 0
        for start in range(0, len(seeds), AT_A_TIME):
            block = seeds[start:start + AT_A_TIME]
            runs = at_once(*(([program, seed], how) for seed in block for how in ({"trace": False}, PRELOADED)))
            found = [problem(program, seed, plain, shim) for seed, plain, shim in zip(block, runs[::2], runs[1::2])]
            problems += [text for text in found if text]
            uses += by_staging(runs[::2])
        judge(not problems and uses > 0, f"random_waits, {runtime} runtime",
              f"{len(problems)} of {len(seeds)} programs:\n" + "\n".join(problems[:3]) if problems
              else f"{len(seeds)} programs the same, with {uses} uses of memory that only staging orders")
