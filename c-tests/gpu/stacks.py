"""How much stack calls take, plain and preloaded, each on a stack that was painted before."""

from harness import BUILD, HERE, Failed, Run, build, judge, table

MOST_BESIDES = 4096  # bytes that a call may take more
ROOM = 64  # KiB of a stack, from which on something may be made for the first time
STACKS = (48, 256)
BYTES = 16 << 20


def depths(command, **variables):
    run = Run(command, trace=False, LD_BIND_NOW="1", **variables)
    if run.status != 0:
        raise Failed(f"{' '.join(run.command)}: {run.ended()}")
    lines = (line.split(" ", 1) for line in run.out.splitlines())
    return {which: int(depth) for which, depth in lines if which != "then"}


def stack_depth():
    """Each path of `stacks.tsv` that needs no simulated GPU."""
    program = build("cases/stack_depth.c", "static")
    lines = [line.split("\t") for line in (HERE / "stacks.tsv").read_text().splitlines() if not line.startswith("#")]
    rows, wrong, plain = [["path", "call", "stack", "which", "plain", "preloaded", "more"]], [], {}
    for number, (path, call, before, options, _) in enumerate(lines[1:]):
        if "P2PSIM_" in options:
            continue
        folder = BUILD / f"stacks-{number}"
        variables = dict(option.split("=", 1) for option in options.replace("FOLDER", str(folder)).split())
        for stack in STACKS:
            command = [program, call, BYTES, stack]
            if (call, stack) not in plain:
                plain[call, stack] = depths(command)
            for which, own in depths([*command, before], preload=True, **variables).items():
                without = plain[call, stack][which]
                rows.append([path, call, f"{stack} KiB", which, str(without), str(own), f"{own - without:+}"])
                if own - without > MOST_BESIDES and (stack < ROOM or which == "later"):
                    wrong.append(" ".join(rows[-1]))
    table(rows)
    judge(not wrong, "stack_depth", "; ".join(wrong) or f"{len(rows) - 1} figures, at most {MOST_BESIDES} bytes more than plain")
