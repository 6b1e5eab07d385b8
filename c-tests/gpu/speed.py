"""Checks that measure: what the shim makes faster, and what that costs. They run one at a time."""

import glob
import json
import os
import re
import subprocess
import time
from statistics import median, quantiles

from harness import BUILD, HERE, Failed, Run, at_once, build, judge, report, table

ROUNDS = 5
PROCESSORS = 4  # that programs to be compared run on
ROUNDS_OF_COST = 7  # what differs by tens of nanoseconds takes more
GENERATIONS = 20  # of programs that take turns

LEAST_DIRECT = 0.99  # bandwidth of a program that never enables, preloaded, to that of one that does
MOST_SMALL = 1.10  # time until a small copy is complete, likewise; 1.05 is noise
LEAST_POOL = 0.98  # bandwidth between pools, preloaded, to that between ordinary memory with access enabled
MOST_SPINNING_MS = 50  # a call while kernels on both GPUs spin
LEAST_STAGED = {1: 1.0, 4: 0.97, 8: 1.0, 16: 1.1, 64: 1.1, 128: 1.25, 256: 1.25, 1024: 1.3}  # GB/s staged by the shim to those of the driver, by MiB
LEAST_STAGED_BOTH_WAYS = 2.2  # the same of 1 GiB both ways at once, in the default streams: there the driver makes one copy after the other
LEAST_OF_CEILING = 0.85  # GB/s both ways in streams of their own to those that the links to the host take
LEAST_OF_PAIRS = 1.0  # GB/s of two pairs at once, staged by whoever is faster, to those of the driver
LEAST_OF_LINKS = 0.97  # GB/s a link of several at once, staged by whoever is faster, to those of the driver
ROUNDS_OF_LINKS = 3
LEAST_OF_FORMS = 0.97  # GB/s of copies of any size and form, staged by whoever is faster, to those of the driver
MOST_EXCHANGE = 1.0  # time of a program that exchanges 8 MiB both ways, staged by whoever is faster, to that without the shim
MOST_BESIDE = 1.0  # time until 1 GiB is copied and 1 GiB has come from the host, staged by whoever is faster, to that with the driver
MOST_STAGED_MS = 0.8  # host time of a copy of 1 GiB that the shim stages
MOST_FIRST_USE_MS = 20  # first use of a pair, beyond what the driver's own enabling takes
LEAST_AFTERWARDS = 0.9  # bandwidth after the first use: direct, or not
MOST_TRACED = 1.05  # host time of a copy that is recorded, runtime and driver call together, to that of the plain program
MOST_OFF = 0.02  # by how much the report's bandwidth may be off what the program measures itself
MOST_SAMPLED = 1.01  # time of copies some of which are read back, to that of the same copies when none is
MOST_ALLOCATION = 1.5  # time of an allocation to that with the same access enabled by the program


def quicker(times):
    """The median of the quicker half.

    Virtual machines have spells of seconds in which every call takes a microsecond longer, the plain program's too. That is
    never an advantage, so that the quicker runs are those that were not disturbed. They are shown; all runs are judged.
    """
    return median(sorted(times)[:(len(times) + 1) // 2])


def medians(rounds, keys, of=median):
    """The lines of several runs, median by median; `keys` is how many columns say which line it is."""
    lines = {}
    for line in (line for lines_of_round in rounds for line in lines_of_round):
        lines.setdefault(tuple(int(value) for value in line[:keys]), []).append(line[keys:])
    return {key: [of(column) for column in zip(*values)] for key, values in lines.items()}


def alternate(programs, rounds=ROUNDS):
    """Runs the programs in turn, round by round: a drift of the machine then meets all of them.

    All run on the same few processors: where the system puts a program is chance.
    """
    answers = {name: [] for name in programs}
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:PROCESSORS])
    try:
        for _ in range(rounds):
            for name, (command, options) in programs.items():
                answers[name].append(Run(command, trace=False, **options).numbers())
    finally:
        os.sched_setaffinity(0, allowed)
    return answers


def in_turn(programs):
    """Runs measuring programs side by side on one processor, each for a few rows whenever it is its turn: what disturbs the
    machine, or that processor, for longer than that meets all of them. Answers the lines of each, generation by generation.

    Another processor each time, and another order: it makes a difference who comes after whom.
    """
    answers = {name: [] for name in programs}
    processors = sorted(os.sched_getaffinity(0))
    for generation in range(GENERATIONS):
        names = list(programs)[::-1 if generation % 2 else 1]
        turns = [BUILD / f"turn-{generation}-{number}" for number in range(len(names))]
        for turn in turns:
            os.mkfifo(turn)
        first = os.open(turns[0], os.O_RDWR)
        try:
            os.write(first, b"x")
            runs = []
            for name, mine, following in zip(names, turns, turns[1:] + turns[:1]):
                command, options = programs[name]
                processor = processors[(generation + 1) % len(processors)]
                runs.append(([*command, mine, following, processor], {"trace": False, **options}))
            for name, run in zip(names, at_once(*runs)):
                answers[name].append(run.numbers())
        finally:
            os.close(first)
    return answers


def same_pairs(answers):
    """All programs must have measured the same, and something."""
    keys = {tuple(sorted(answer)) for answer in answers}
    if len(keys) != 1 or not all(keys):
        raise Failed(f"the runs measured different pairs: {keys}")


def extreme(ratios, worst):
    pair = worst(ratios, key=ratios.get)
    return ratios[pair], f"{pair[0]}>{pair[1]}"


def bandwidth():
    program = build("bandwidth.c")
    answers = alternate({
        "never, plain": ([program, "never"], {}),
        "enables, plain": ([program, "enables"], {}),
        "never, preloaded": ([program, "never"], {"preload": True}),
        "pool, preloaded": ([program, "pool"], {"preload": True}),
    })
    undisturbed = {name: medians(rounds, 2, quicker) for name, rounds in answers.items()}
    answers = {name: medians(rounds, 2) for name, rounds in answers.items()}
    same_pairs(answers.values())
    never, enables, shim, pool = (answers[name] for name in
                                  ("never, plain", "enables, plain", "never, preloaded", "pool, preloaded"))
    pairs = sorted(never)

    print(f"        256 MiB, GB/s; medians of {ROUNDS} runs")
    table([["pair", *answers, "preloaded/enables", "pool/enables"]] + [
        [f"{pair[0]}>{pair[1]}", *(f"{answer[pair][0]:.1f}" for answer in answers.values()),
         f"{shim[pair][0] / enables[pair][0]:.4f}", f"{pool[pair][0] / enables[pair][0]:.4f}"] for pair in pairs])
    print("        4 bytes: host time of the call / time until complete / time of each of 100 in a row, us")
    for which, times in (("all runs", answers), ("quicker runs", undisturbed)):
        mine, theirs = times["never, preloaded"], times["enables, plain"]
        table([[which, *times, "preloaded/enables"]] + [
            [f"{pair[0]}>{pair[1]}", *(" / ".join(f"{time:.2f}" for time in answer[pair][1:]) for answer in times.values()),
             " / ".join(f"{one / other:.3f}" for one, other in zip(mine[pair][1:], theirs[pair][1:]))] for pair in pairs])

    ratio, pair = extreme({pair: shim[pair][0] / enables[pair][0] for pair in pairs}, min)
    faster, _ = extreme({pair: shim[pair][0] / never[pair][0] for pair in pairs}, min)
    judge(ratio >= LEAST_DIRECT, "bandwidth, program that never enables",
          f"at least {ratio:.4f} of that with access enabled ({pair}), limit {LEAST_DIRECT}; at least {faster:.1f} times as "
          f"fast as plain")
    ratio, pair = extreme({pair: shim[pair][2] / enables[pair][2] for pair in pairs}, max)
    judge(ratio <= MOST_SMALL, "bandwidth, small copies",
          f"complete after at most {ratio:.3f} of the time with access enabled ({pair}), limit {MOST_SMALL}")
    ratio, pair = extreme({pair: pool[pair][0] / enables[pair][0] for pair in pairs}, min)
    judge(ratio >= LEAST_POOL, "bandwidth, pools",
          f"at least {ratio:.4f} of that of ordinary memory with access enabled ({pair}), limit {LEAST_POOL}")


def spinning():
    program = build("spinning.cu")
    for kind in ("many", "large", "pool", "mapped"):
        plain = Run([program, kind])
        shim = Run([program, kind, MOST_SPINNING_MS], preload=True, trace=False)
        if plain.status != 0:
            raise Failed(plain.ended())
        # Copies that complete only when the kernels end would hang a program whose kernels wait for the copies.
        complete = "complete meanwhile: yes"
        right = shim.status == 0 and (complete in shim.out or complete not in plain.out)
        judge(right, f"spinning, {kind}", shim.out.strip() or shim.ended())
        print(f"        plain: {plain.out.strip()}")
        if shim.err:
            print(f"        standard error: {shim.err.strip()}")


def pinning():
    """What it takes to make a ring for staging, beside a kernel that waits for the host."""
    run = Run([build("pinning.cu"), MOST_SPINNING_MS], trace=False)
    rows = [line.split("\t") for line in run.out.splitlines()]
    table([["call, ms", "idle", "while a kernel spins"], *rows])
    judge(run.status == 0 and rows, "pinning", f"no call takes {MOST_SPINNING_MS} ms while a kernel spins" if run.status == 0 else run.ended())


def checked():
    """The variable for a verdict that says who stages copies faster; the doctor makes it once."""
    folder = BUILD / "checked"
    if not folder.exists():
        made = Run([HERE / "p2pshim", "doctor"], trace=False, XDG_CACHE_HOME=str(folder))
        rates = made.out[made.out.find("staged, GB/s of each link"):].split("\n\n")[0]
        if made.status != 0 or not rates:
            raise Failed(made.ended())
        print("\n".join(f"        {line}" for line in rates.splitlines()))
    return {"XDG_CACHE_HOME": str(folder)}


def by_whoever(program, words=(), keys=0):
    """What a program measures without peer access, staged by the driver and by whoever is faster; the lines of each by their first columns."""
    by = {"driver": "driver", "p2pshim": "auto"}
    hidden = {"preload": True, "P2PSHIM_ACCESS": "off", **checked()}
    answers = alternate({who: ([program, *words], {**hidden, "P2PSHIM_STAGING": value}) for who, value in by.items()})
    answers = {who: medians(rounds, keys) for who, rounds in answers.items()}
    same_pairs(answers.values())
    return answers


def staging():
    """Copies without peer access, staged by the driver and by the shim."""
    program = build("staging.c")
    answers = {who: {mib: line for (mib,), line in lines.items()} for who, lines in by_whoever(program, keys=1).items()}
    driver, shim = answers["driver"], answers["p2pshim"]
    print("        GB/s one way / us of the call / GB/s both ways together / the same in the default streams")
    table([["MiB", *answers, "p2pshim/driver"]] + [
        [str(mib), *(" / ".join(f"{value:.1f}" for value in answer[mib]) for answer in answers.values()),
         " / ".join(f"{mine / theirs:.3f}" for mine, theirs in zip(shim[mib], driver[mib]))] for mib in sorted(driver)])
    ratios = {mib: shim[mib][0] / driver[mib][0] for mib in shim}
    # Copies of less than 8 MiB are the driver's in both columns: what differs there by less than a hundredth is chance.
    slow = {mib: ratio for mib, ratio in ratios.items() if (ratio if mib >= 8 else round(ratio, 2)) < LEAST_STAGED[mib]}
    judge(not slow, "staging, one way", f"too slow: {slow}" if slow else f"at least {LEAST_STAGED} of the driver's bandwidth")
    *_, own, by_default = (mine / theirs for mine, theirs in zip(shim[1024], driver[1024]))
    judge(by_default >= LEAST_STAGED_BOTH_WAYS, "staging, both ways in the default streams",
          f"{by_default:.2f} of the driver's bandwidth, limit {LEAST_STAGED_BOTH_WAYS}")
    ceiling = median(value for ((value,),) in alternate({"ceiling": ([program, "ceiling"], {})})["ceiling"])
    judge(shim[1024][2] >= LEAST_OF_CEILING * ceiling, "staging, both ways in streams of their own",
          f"{shim[1024][2]:.1f} GB/s, {shim[1024][2] / ceiling:.3f} of the {ceiling:.1f} that the links to the host take, limit {LEAST_OF_CEILING}; "
          f"{own:.2f} of the driver's, of which the links allow {ceiling / driver[1024][2]:.2f}")
    limit = MOST_STAGED_MS * 1e3
    judge(shim[1024][1] <= limit, "staging, host time", f"{shim[1024][1]:.0f} us of the call of 1 GiB, limit {limit:.0f}")


def staging_forms():
    """No form or size is slower than with the driver, in whichever stream."""
    answers = by_whoever(build("staging.c"), ["forms"], keys=3)
    ratios = {form: answers["p2pshim"][form][0] / rate for form, (rate,) in answers["driver"].items()}
    print("        GB/s in a stream of its own / in the default stream")
    table([["bytes of a row", "rows", *answers, "p2pshim/driver"]] + [
        [str(width), str(rows), *(" / ".join(f"{answer[width, rows, by_default][0]:.4g}" for by_default in (0, 1)) for answer in answers.values()),
         " / ".join(f"{ratios[width, rows, by_default]:.3f}" for by_default in (0, 1))] for width, rows, is_default in answers["driver"] if not is_default])
    slow = {form: round(ratio, 3) for form, ratio in ratios.items() if ratio < LEAST_OF_FORMS}
    judge(not slow, "staging_forms", f"{slow or min(ratios.values())}: at least {LEAST_OF_FORMS} of the driver's bandwidth")


def staging_pairs(gpus):
    """Two pairs at once on four GPUs."""
    if gpus < 4:
        return report("skipped", "staging_pairs", "four GPUs are needed")
    answers = by_whoever(build("staging.c"), ["pairs"])
    (driver, driver_alone), (both, alone) = (answers[who][()] for who in ("driver", "p2pshim"))
    judge(both / driver >= LEAST_OF_PAIRS, "staging_pairs", f"GB/s of 0>1 and 2>3 at once, from one thread: {driver:.1f} by the driver, {both:.1f} by p2pshim, "
          f"{both / driver:.3f}, limit {LEAST_OF_PAIRS}; of 0>1 alone {driver_alone:.1f} and {alone:.1f}")


def links():
    """One link and all links at once, from threads, with kernels between the copies, and from processes; by each stager."""
    program = build("links.c")
    hidden = {"preload": True, "trace": False, "P2PSHIM_ACCESS": "off", **checked()}
    stagers = ("driver", "auto", "always")
    divisor = os.environ.get("LINKS_DIVISOR", "1")  # for simulated GPUs
    rows = [["", "links", "MiB", *stagers, "auto/driver", "always/driver", "driver's slowest and fastest to its median"]]
    ratios = {}
    for way in ("threads", "kernels", "processes"):
        rounds = {stager: [] for stager in stagers}
        for _ in range(ROUNDS_OF_LINKS):
            for stager in stagers:
                rounds[stager].append(Run([program, way, divisor], P2PSHIM_STAGING=stager, **hidden).numbers())
        answers = {stager: medians(of, 2) for stager, of in rounds.items()}
        same_pairs(answers.values())
        driver_of = {key: sorted(line[2] for of_round in rounds["driver"] for line in of_round if tuple(line[:2]) == key) for key in answers["driver"]}
        for key, (driver,) in answers["driver"].items():
            auto, always = (answers[stager][key][0] / driver for stager in stagers[1:])
            if key[1] >= 8:  # below, the driver stages all
                ratios[way, *key] = auto
            rows.append([way, *(str(number) for number in key), *(f"{answers[stager][key][0]:.1f}" for stager in stagers), f"{auto:.3f}", f"{always:.3f}",
                         f"{driver_of[key][0] / driver:.2f} to {driver_of[key][-1] / driver:.2f}"])
    print(f"        GB/s a link; medians of {ROUNDS_OF_LINKS} rounds, bytes compared")
    table(rows)
    slow = {case: round(ratio, 3) for case, ratio in ratios.items() if ratio < LEAST_OF_LINKS}
    judge(not slow, "links", f"{slow or round(min(ratios.values()), 3)}: at least {LEAST_OF_LINKS} of the driver's bandwidth")


def staging_beside():
    """The same while the program's own copy from the host to one of the GPUs is under way: whoever stages, both are made as soon."""
    program = build("staging.c")
    hidden = {"preload": True, "P2PSHIM_ACCESS": "off", **checked()}
    answers = alternate({who: ([program, "beside"], {**hidden, "P2PSHIM_STAGING": value}) for who, value in (("driver", "driver"), ("p2pshim", "auto"))})
    taken = {who: [median(float(line[place]) for (line,) in rounds) for place in range(3)] for who, rounds in answers.items()}
    ratio = taken["p2pshim"][2] / taken["driver"][2]
    each = "; ".join(f"{who} {copy:.1f} ms the copy, {upload:.1f} the other, {both:.1f} both" for who, (copy, upload, both) in taken.items())
    judge(ratio <= MOST_BESIDE, "staging_beside", f"{each}: {ratio:.3f}, limit {MOST_BESIDE}")


def exchange():
    """A program that computes, exchanges 8 MiB both ways and computes on, without access: whoever stages, as fast and to the same bit."""
    program = build("exchange.cu")
    hidden = {"preload": True, "P2PSHIM_ACCESS": "off", **checked()}
    answers = alternate({"plain": ([program], {}), "auto": ([program], hidden), "driver": ([program], {**hidden, "P2PSHIM_STAGING": "driver"})})
    milliseconds = {who: median(float(line[0]) for (line,) in rounds) for who, rounds in answers.items()}
    sums = {line[1] for rounds in answers.values() for (line,) in rounds}
    ratio = milliseconds["auto"] / milliseconds["plain"]
    judge(ratio <= MOST_EXCHANGE and len(sums) == 1, "exchange",
          f"ms of a round: {', '.join(f'{value:.3f} {who}' for who, value in milliseconds.items())}; auto {ratio:.3f} of plain, "
          f"limit {MOST_EXCHANGE}; {'the same results' if len(sums) == 1 else f'results {sums}'}")


def held_up():
    """Whether copies wait in their call for a kernel before them: with the shim none does that would not with access enabled."""
    program = build("held_up.cu")
    ways = {"never, plain": (["never"], {}), "enables, plain": (["enables"], {}), "never, preloaded": (["never"], {"preload": True})}
    taken = {}
    for way, (words, options) in ways.items():
        run = Run([program, *words], trace=False, **options)
        if run.status != 0:
            raise Failed(run.ended())
        for line in run.out.splitlines():
            *which, milliseconds = line.split("\t")
            taken.setdefault(tuple(which), {})[way] = float(milliseconds)
    same_pairs([set(answer) for answer in taken.values()])
    print("        a kernel spins for 150 ms; ms until the call of a copy from GPU 0 to GPU 1 returned")
    table([["copy", "bytes", *ways]] + [[*which, *(f"{answer[way]:.2f}" for way in ways)] for which, answer in taken.items()])
    beyond = max(answer["never, preloaded"] - answer["enables, plain"] for answer in taken.values())
    judge(beyond <= MOST_SPINNING_MS, "held_up", f"no call takes more than {beyond:.2f} ms beyond that with access enabled, limit {MOST_SPINNING_MS}")


def first_use_of(kind, words):
    program = build("first_use.c")
    answers = alternate({
        "explicit": ([program, "explicit", *words], {}),
        "copy": ([program, "copy", *words], {"preload": True}),
    })
    explicit, shim = (medians(answers[name], 2) for name in ("explicit", "copy"))
    same_pairs([explicit, shim])
    rows, beyond, direct = [], {}, {}
    for pair in sorted(explicit):
        enable, call, _, back, _, theirs = explicit[pair]
        _, shim_call, _, shim_back, _, mine = shim[pair]
        beyond[pair] = max(shim_call - enable - call, shim_back - back) / 1e3
        direct[pair] = mine / theirs
        rows.append([f"{pair[0]}>{pair[1]}", f"{enable / 1e3:.2f}", f"{call / 1e3:.2f}", f"{back / 1e3:.2f}",
                     f"{shim_call / 1e3:.2f}", f"{shim_back / 1e3:.2f}", f"{mine:.0f} of {theirs:.0f} GB/s"])
    print(f"        {kind}, host time in ms; medians of {ROUNDS} runs")
    table([["pair", "enabling", "first copy", "first back", "preloaded: first copy", "first back", "afterwards"]] + rows)
    most, pair = extreme(beyond, max)
    least, slow = extreme(direct, min)
    judge(most <= MOST_FIRST_USE_MS and least >= LEAST_AFTERWARDS, f"first_use, {kind}",
          f"at most {most:.2f} ms beyond enabling and copying ({pair}), limit {MOST_FIRST_USE_MS}; afterwards at least "
          f"{least:.3f} of the bandwidth with access enabled ({slow})")


def first_use():
    first_use_of("ordinary memory", [])
    first_use_of("pools", ["pool"])


def probe():
    """The other ways to verify a pair: with kernels, by the command, whose verdicts are kept; and not at all."""
    program = build("first_use.c")
    explicit = medians([Run([program, "explicit"]).numbers()], 2)
    cache = BUILD / "cache"
    makes_verdicts = [HERE / "p2pshim", "run", "--no-report", "--verify", "full", "true"]
    for name, value in (("full", "full"), ("off", "off")):
        if value == "full":
            begun = time.monotonic()
            made = Run(makes_verdicts, trace=False, XDG_CACHE_HOME=str(cache))
            print(f"        verdicts made in {time.monotonic() - begun:.1f} s: {made.err.strip()}")
        run = Run([program, "copy"], preload=True, trace=False, P2PSHIM_VERIFY=value, XDG_CACHE_HOME=str(cache))
        answer = medians([run.numbers()], 2)
        same_pairs([explicit, answer])
        least, pair = extreme({pair: answer[pair][5] / explicit[pair][5] for pair in answer}, min)
        kept = [path for path in cache.rglob("*") if path.is_file()]
        private = all(path.stat().st_mode & 0o777 == 0o600 for path in kept)
        judge(least >= LEAST_AFTERWARDS and private and (kept or value == "off"), f"probe, {name}",
              f"first copies take {', '.join(f'{answer[pair][1] / 1e3:.1f}' for pair in sorted(answer))} ms; afterwards at "
              f"least {least:.3f} of the bandwidth with access enabled ({pair}); {len(kept)} files kept, "
              f"{'for the user only' if private else 'READABLE BY OTHERS'}")
        if run.err:
            print(f"        standard error: {run.err.strip()}")


def alloc_cost():
    program = build("alloc_cost.c")
    answers = alternate({
        "enables, plain": ([program, "enables"], {}),
        "copies, P2PSHIM_ACCESS=app": ([program, "copies"], {"preload": True, "P2PSHIM_ACCESS": "app"}),
        "copies, preloaded": ([program, "copies"], {"preload": True}),
    })
    answers = {name: medians(rounds, 1) for name, rounds in answers.items()}
    same_pairs(answers.values())
    enables, app, auto = answers.values()
    print(f"        4 MiB, cudaMalloc / cudaFree, us; medians of {ROUNDS} runs")
    table([["peers", *answers]] + [
        [str(peers), *(" / ".join(f"{time:.1f}" for time in answer[peers,]) for answer in answers.values())]
        for peers, in sorted(enables)])
    most = max(mine / theirs for peers in enables for mine, theirs in zip(auto[peers], enables[peers]))
    judge(most <= MOST_ALLOCATION, "alloc_cost, preloaded",
          f"at most {most:.2f} of the time with the same access enabled by the program, limit {MOST_ALLOCATION}")
    most = max(mine / theirs for peers in app for mine, theirs in zip(app[peers], enables[0,]))
    judge(most <= MOST_ALLOCATION, "alloc_cost, P2PSHIM_ACCESS=app",
          f"at most {most:.2f} of the time without peers, limit {MOST_ALLOCATION}")


def cupti():
    """The library that traces by CUPTI, for comparison; none if there is no CUPTI here."""
    headers = glob.glob("/usr/local/cuda*/**/cupti.h", recursive=True) + glob.glob("/usr/lib/python3*/**/cupti.h", recursive=True)
    libraries = glob.glob("/usr/local/cuda*/**/libcupti.so", recursive=True)
    if not headers or not libraries:
        return None
    library = BUILD / "libcupti_traces.so"
    command = ["nvcc", "-O1", "-shared", "-Xcompiler", "-fPIC", f"-I{headers[0].rsplit('/', 1)[0]}", "-o", library,
               HERE / "cupti_traces.c", f"-L{libraries[0].rsplit('/', 1)[0]}", "-lcupti",
               "-Xlinker", f"-rpath={libraries[0].rsplit('/', 1)[0]}"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"cupti_traces.c does not compile: {done.stderr[-300:]}")
    return library


def trace_cost():
    """What recording costs the host, beside what other tracers are made of."""
    program = build("enqueue.c", "shared")
    traces = {"preload": True, "P2PSHIM_TRACE": str(BUILD / "traces"), "P2PSHIM_TRACE_LIMIT": "4G"}
    programs = {
        "plain": ([program, "small"], {}),
        "P2PSHIM=off": ([program, "small"], {"preload": True, "P2PSHIM": "off"}),
        "VALIDATE=off": ([program, "small"], {"preload": True, "P2PSHIM_VALIDATE": "off"}),
        "preloaded": ([program, "small"], {"preload": True}),
        "traced": ([program, "small"], traces),
        "GPU_TIMING=off": ([program, "small"], {**traces, "P2PSHIM_GPU_TIMING": "off"}),
        "GPU_TIMING=all": ([program, "small"], {**traces, "P2PSHIM_GPU_TIMING": "all"}),
    }
    library = cupti()
    if library:
        for how in ("activity", "callbacks"):
            programs[f"CUPTI {how}"] = ([program, "small"], {"CUDA_INJECTION64_PATH": str(library), "CUPTI_TRACES": how})
    else:
        report("skipped", "trace_cost, CUPTI", "there is no cupti.h and libcupti.so under /usr/local/cuda*")
    measured = alternate(programs, ROUNDS_OF_COST)
    print(f"        cudaMemcpyPeerAsync of 4 bytes, ns a call: medians of rows of 200, and their means; {ROUNDS_OF_COST} runs")
    rows = []
    for which, of in (("quicker runs", quicker), ("all runs", median)):
        answers = {name: medians(rounds, 2, of)[0, 1] for name, rounds in measured.items()}
        for column, what in enumerate(("medians", "means")):
            plain = answers["plain"][column]
            rows.append([f"{what}, {which}", *(f"{answer[column]:.0f} ({answer[column] / plain:.3f})"
                                               for answer in answers.values())])
    table([["", *measured]] + rows)
    # Those runs differ by more than what is to be measured.
    turns = in_turn({name: programs[name] for name in ("plain", "preloaded", "traced")})
    print(f"        in turn, {GENERATIONS} times: medians and quartiles of the ratios to plain, by medians and by means of rows")
    ratios, rows = {}, []
    for name, rounds in turns.items():
        for column, what in ((2, "medians"), (3, "means")):
            pairs = zip(rounds, turns["plain"])
            ratios[name, what] = [mine[column] / theirs[column] for (mine,), (theirs,) in pairs]
        low, middle, high = zip(*(quantiles(ratios[name, what]) for what in ("medians", "means")))
        rows.append([name, *(f"{median(round_[0][column] for round_ in rounds):.0f}" for column in (2, 3)),
                     *(f"{one:.3f} ({less:.3f} to {more:.3f})" for one, less, more in zip(middle, low, high))])
    table([["", "medians, ns", "means, ns", "medians to plain", "means to plain"]] + rows)
    ratio = median(ratios["traced", "medians"])
    judge(ratio <= MOST_TRACED, "trace_cost, cudaMemcpyPeerAsync",
          f"recorded {ratio:.3f} of plain by medians, {median(ratios['traced', 'means']):.3f} by means, limit {MOST_TRACED}")


def trace_bandwidth():
    """The report's bandwidth on the GPU against what the program measures itself."""
    program, off = build("enqueue.c", "static"), {}
    for mode in ("all", "sample"):
        folder = BUILD / f"large-{mode}"
        run = Run([program, "large"], preload=True, trace=False, P2PSHIM_TRACE=str(folder), P2PSHIM_GPU_TIMING=mode)
        (_, _, own), = run.numbers()
        done = subprocess.run([HERE / "p2pshim", "report", "--json", folder], capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"p2pshim report ends with {done.returncode}: {done.stderr}")
        pair, = json.loads(done.stdout)["pairs"]
        path, = pair["paths"]
        off[mode] = abs(path["gb_per_s"] / own - 1)
        print(f"        {mode}: {own:.1f} GB/s by the program's events, {path['gb_per_s']:.1f} in the report, of "
              f"{path['device_calls']} of {path['calls']} copies")
    judge(max(off.values()) <= MOST_OFF, "trace_bandwidth",
          f"off by at most {max(off.values()):.4f}, limit {MOST_OFF}")


def read_back():
    """Copies that are compared with their source: none is said to be wrong, though both buffers are used again at once; and what it costs."""
    for value, how, size, count in (("sample", "async", 1 << 20, 100_000), ("sample", "async", 200, 20_000), ("sample", "sync", 1 << 20, 2_000),
                                    ("all", "async", 1 << 20, 2_000), ("all", "async", 256 << 20, 8), ("all", "sync", 3 << 20, 100),
                                    *((value, form, 6 << 20, 300) for value in ("sample", "all") for form in ("2d", "3d", "batch"))):
        for who in ("enable", "leave"):
            run = Run([build("cases/read_back.c", "shared"), who, how, size, count], preload=True, trace=False, P2PSHIM_READBACK=value,
                      P2PSHIM_LOG="info")
            found = re.findall(r"P2P-data-[a-z]+", run.err)
            last = ([line for line in run.err.splitlines() if "compared with their source" in line] or [""])[-1].rpartition(" info: ")[2]
            judge(run.status == 0 and run.out.startswith("0 of ") and not found and "none differs" in last,
                  f"read_back, {value}, {who}, {how}, {count} of {size} bytes", f"{run.out.strip()}; {last}; {found or 'nothing found'}"
                  if run.status == 0 else run.ended())
    program = build("enqueue.c", "shared")
    for size, count in ((1 << 20, 10_000), (16 << 20, 2_000)):
        rounds = alternate({value: ([program, "many", size, count], {"preload": True, "P2PSHIM_READBACK": value}) for value in ("off", "sample")}, 9)
        figures = {value: median(row[0][2] for row in of) for value, of in rounds.items()}
        ratio = figures["sample"] / figures["off"]
        judge(ratio <= MOST_SAMPLED, f"read_back, time of {count} copies of {size} bytes",
              f"{figures['off']:.2f} us a copy, {figures['sample']:.2f} with samples: {ratio:.4f}, limit {MOST_SAMPLED}")
