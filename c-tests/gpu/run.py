"""The shim on real GPUs: unmodified programs run plain and preloaded, and what they do and how fast is compared.

Needs two GPUs or more, nvcc, and for the Python clients CuPy, cuda-python, JAX, Numba and PyTorch. A client that is not
installed is reported as skipped, by name. Arguments are parts of the names of the checks to make. Prints a line a check,
tables, and a summary; exits with 0 only if no check failed.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from time import monotonic

import busy
import consumers
import gauntlet
import hangs
import legacy
import neighbours
import processes
import regular
import sequences
import speed
import stacks
import ucx
import waits
from harness import BUILD, HERE, SHIM, Run, at_once, build, check, judge, report, results, table

COPIES = ["cudaMemcpyPeer", "cudaMemcpyPeerAsync", "cudaMemcpy3DPeer", "cudaMemcpy3DPeerAsync"]
TABLE = HERE / "conformance.tsv"
# `MEASURE_TABLE=conformance-graphs.tsv run.sh measure`: another table than that of rows not yet measured.
UNMEASURED = HERE / os.environ.get("MEASURE_TABLE", "conformance-unmeasured.tsv")
# `MEASURE_ROWS=1-200 run.sh measure`, `CONFORMANCE_ROWS=71-170 run.sh conformance`: a part of the rows. Contexts are created
# nearly one after the other, so that a row costs 0.4 s in each way that it is run. Among all other checks, these will do.
MEASURE_ROWS = ["--only", os.environ["MEASURE_ROWS"]] if os.environ.get("MEASURE_ROWS") else []
CONFORMANCE_ROWS = os.environ.get("CONFORMANCE_ROWS") or ("1-999" if len(sys.argv) > 1 else "1-70")
ROUNDS = 7
MOST_WITH_VERDICT = 20  # microseconds that enabling a pair may take more where the verdict on it is kept
MOST_VERIFYING = 10_000  # microseconds that the first verification of a pair may take
MOST_SECONDS = 1.1  # of a row in one way
JOBS = 12  # rows at a time
MOST_DOCTOR_SECONDS = 10  # for two GPUs, in which three processes start
LEAST_DOCTOR = 0.9  # bandwidth of a pair as the doctor finds it, to what a program with access enabled measures
OFF = {"P2PSHIM_ACCESS": "off"}
APP = {"P2PSHIM_ACCESS": "app"}


def same(name, command, seen=(), ways=(("", {}),), is_right=False, **variables):
    """Plain and preloaded, in each of `ways`, must do the same. `seen` must be in the trace, unless a way hides peers. Of a
    program that is right no finding may say that it is wrong."""
    plain, *others = at_once((command, variables),
                             *((command, {"preload": True, **variables, **way}) for _, way in ways))
    if plain.status == "timeout":
        return report("skipped", name, f"without the shim it does not end within {plain.seconds} s")
    for (label, way), shim in zip(ways, others):
        problems = []
        if plain.status != 0:
            problems.append(f"plain run ends with {plain.status}: {plain.out[-200:]!r} {plain.err.strip()[-300:]}")
        if plain.status != shim.status:
            problems.append(f"status {plain.status} plain, {shim.status} preloaded: {shim.err.strip()[-300:]}")
        if plain.out != shim.out:
            problems.append(f"output differs: {plain.out[-200:]!r} plain, {shim.out[-200:]!r} preloaded")
        # Clients may well say that there are no peers.
        if plain.err != shim.err and way != OFF:
            problems.append(f"standard error differs: {shim.err[-300:]!r}")
        missing = set(seen) - shim.all()
        if missing and way != OFF:
            problems.append(f"not in the trace: {', '.join(sorted(missing))}")
        findings = run_findings(shim)
        wrong = [finding for finding in shim.findings() if finding[1] in ("error", "hazard")]
        if is_right and wrong and way != OFF:
            problems.append(f"said to be wrong: {wrong}")
        last = (plain.out.strip().splitlines() or [""])[-1][:120]
        judge(not problems, f"{name}{label and ', '}{label}", "; ".join(problems) or (shim.counts() or last) + findings)


def run_findings(run):
    """What was found, for a report; nothing if nothing was."""
    found = [f"{rule} ({severity}) of {function}" for rule, severity, function in run.findings()]
    return "; found: " + ", ".join(found) if found else ""


def captured_copies(first, last):
    """How many of these rows there are, and which of them the shim answers otherwise, and how: asynchronous peer copies on a
    capturing stream, which CUDA refuses with 900. One from or to nowhere, or of nothing, has no equal that can be captured; one
    with wrong arguments is refused for these."""
    copy = re.compile(r"cu(da)?Memcpy(3D)?PeerAsync(_ptsz)?\((?!NULL|0,)")
    rows = [line.split("\t") for line in TABLE.read_text().splitlines() if not line.startswith("#")][1:]
    part = list(enumerate(rows, 1))[first - 1:last]
    return len(part), {number: documented or "0" for number, (setup, call, documented, ret, *_) in part
                       if ret == "900" and copy.match(call) and "extent.width=0" not in setup}


def conformance():
    """Rows of the table, plain and preloaded; unless told not to, the shim captures peer copies that are refused otherwise."""
    count, captured = captured_copies(*map(int, CONFORMANCE_ROWS.split("-")))
    ways = (
        ("plain", {}, {}),
        ("preloaded", {"preload": True}, captured),
        ("preloaded, P2PSHIM_ACCESS=app", {"preload": True, **APP}, captured),
        ("preloaded, P2PSHIM_CAPTURE=forward", {"preload": True, "P2PSHIM_CAPTURE": "forward"}, {}),
    )
    for runtime in ("static", "shared"):
        command = [build("conformance.c", runtime), "--jobs", JOBS // len(ways), "--only", CONFORMANCE_ROWS, TABLE]
        seconds = MOST_SECONDS * count * len(ways)
        runs = at_once(*((command, {"seconds": seconds, **options}) for _, options, _ in ways))
        for (way, _, expected), run in zip(ways, runs):
            last = (run.out.strip().splitlines() or [""])[-1]
            differ = {int(number): line for number, line in re.findall(r"^row (\d+) (differs: .*)$", run.err, re.M)}
            wrong = [f"row {number} {line}" for number, line in differ.items()
                     if number not in expected
                     or not re.search(rf": expected 900\t.*, got {expected[number]}\t[-0]\t-7$", line)]
            right = not wrong and expected.keys() == differ.keys() and run.status == int(bool(differ))
            judge(right and last.startswith(f"# {count} rows: "), f"conformance, {runtime} runtime, {way}", last or run.ended())
            print("\n".join(wrong), end="\n" if wrong else "")


def measure():
    """What this machine answers to rows that no GPU has answered yet, left in $OUT, row by row, or in a folder of its own.

    Only when asked for by name: contexts are created nearly one after the other, so that it takes some 5 minutes.
    """
    program = build("conformance.c")
    folder = Path(os.environ.get("OUT") or tempfile.mkdtemp(prefix="p2pshim-measured-"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("P2PSHIM")}
    # MEASURE_PRELOADED=1: what programs get with the shim, in a file of its own.
    preload = {"LD_PRELOAD": str(SHIM)} if os.environ.get("MEASURE_PRELOADED") else {}
    to = folder / f"{'preloaded-' if preload else ''}{UNMEASURED.name if os.environ.get('MEASURE_TABLE') else 'conformance.tsv'}"
    print(f"        rows go to {to}", flush=True)
    with open(to, "w") as file:
        done = subprocess.run([program, "measure", "--jobs", str(JOBS), *MEASURE_ROWS, UNMEASURED], stdout=file,
                              env={**environment, **preload})
    rows = [line for line in to.read_text().splitlines() if line.count("\t") == 5][1:]
    judge(done.returncode == 0, "measure", f"{len(rows)} rows in {to}")


def captured():
    """CUDA refuses peer copies on a capturing stream; with the shim they are captured and replay."""
    for runtime in ("static", "shared"):
        program = build("cases/captured_copies.c", runtime)
        plain, shim, beside = at_once(([program], {}), ([program], {"preload": True}),
                                      ([program, "elsewhere"], {"preload": True}))
        right = plain.status == 1 and shim.status == 0 and beside.status == 0
        graphs, rewritten = shim.out.count("100 replays, 0 rows wrong"), shim.trace.count(" captured as ")
        judge(right and graphs == 6, f"captured_copies, {runtime} runtime",
              f"ends with {plain.status} plain, {shim.status} preloaded ({rewritten} copies rewritten, {graphs} graphs "
              f"replayed 100 times with the right bytes), {beside.status} beside a global capture of another thread")
        if not right:
            print(plain.out + plain.err + shim.out + shim.err + beside.out + beside.err)


def case(name):
    for runtime in ("static", "shared"):
        copies = COPIES if runtime == "shared" else [copy.replace("cuda", "cu", 1) for copy in COPIES]
        program = build(f"cases/{name}.c", runtime)
        same(f"{name}, {runtime} runtime", [program], () if name == "entry_point" else copies)


def admitted():
    """Programs that enable peer access themselves, by contexts, pools and mapped memory: nothing is refused where data arrives, all data
    is right where all is denied, and what the first enabling of a pair takes."""
    program = build("cases/broken_paths.c", "shared")
    for who in ("nobody", "program", "asks", "pool", "mapped"):
        same(f"admitted, {who}", [program, who])
        denied = Run([program, who], preload=True, P2PSHIM_DENY="0-1")
        # As on hardware without a path, which has no rights to give.
        refused = ("regular", "batch", "graph") if who in ("pool", "mapped") else ()
        wanted = {f"{form}: {'refused' if form in refused else 'right'}" for form in ("peer", "regular", "batch", "graph", "3D")}
        judge(denied.status == 0 and wanted <= set(denied.out.splitlines()), f"admitted, {who}, denied", denied.out.replace("\n", "; ") + denied.err[-200:])
    cache = tempfile.mkdtemp(dir=BUILD)
    verdicts = {"XDG_CACHE_HOME": cache}
    made = Run([HERE / "p2pshim", "doctor"], trace=False, **verdicts)
    ways = {"plain": {}, "not verified": {"P2PSHIM_VERIFY": "off"}, "verified": {}, "by verdict": verdicts}
    rounds = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, variables in ways.items():
            run = Run([program, "program", "times"], preload=way != "plain", trace=False, **{"XDG_CACHE_HOME": str(BUILD / "none"), **variables})
            rounds[way].append(run.numbers()[0][0])
    figures = {way: median(of) for way, of in rounds.items()}
    table([["first enabling", *figures], ["us, median", *(f"{figure:.0f}" for figure in figures.values())]])
    more, by_verdict = (figures[way] - figures["not verified"] for way in ("verified", "by verdict"))
    judge(more <= MOST_VERIFYING, "admitted, time", f"verifying takes {more:.0f} us, limit {MOST_VERIFYING}")
    judge(by_verdict <= MOST_WITH_VERDICT and made.status == 0, "admitted, time with a verdict",
          f"{by_verdict:.1f} us more, limit {MOST_WITH_VERDICT}; the doctor ends with {made.status}")


def hidden():
    """What a program finds that looks for peers by every route, plain, with access enabled for it, and with it hidden."""
    program = build("cases/hidden.c")
    ways = (
        ("plain", {}, ()),
        ("preloaded", {"preload": True}, ()),
        ("preloaded, P2PSHIM_ACCESS=app", {"preload": True, **APP}, ()),
        ("P2PSHIM_ACCESS=off", {"preload": True, **OFF}, None),
        ("P2PSHIM_DENY=0-1", {"preload": True, "P2PSHIM_DENY": "0-1"}, ("0>1", "1>0")),
        ("P2PSHIM_DENY=1>0", {"preload": True, "P2PSHIM_DENY": "1>0"}, ("1>0",)),
    )
    runs = at_once(*(([program], options) for _, options, _ in ways))
    for (way, _, expected), run in zip(ways, runs):
        verdicts = re.findall(r"^(\d+>\d+) is (\w+)$", run.out, re.M)
        wrong = [f"{pair} is {verdict}" for pair, verdict in verdicts
                 if verdict != ("hidden" if expected is None or pair in expected else "reachable")]
        problems = sorted(set(wrong))
        if run.status != 0 or not verdicts:
            problems.append(run.ended())
        if expected == () and run.out != runs[0].out:
            problems.append("the output is not that of the plain run")
        found = {verdict: len({pair for pair, of_pair in verdicts if of_pair == verdict}) for _, verdict in verdicts}
        judge(not problems, f"hidden, {way}", "; ".join(problems) or
              ", ".join(f"{count} pairs {verdict}" for verdict, count in sorted(found.items())) + "; all copies right")
        if problems:
            print("\n".join(dict.fromkeys((run.out + run.err).splitlines())))


def driver_api():
    same("driver_api", [build("cases/driver_api.c", "shared"), "no-null-pointers"], ["cuMemcpyPeer", "cuMemcpyPeer_ptds"])


def doctor():
    """What the doctor says of this machine; its pairs must be verified, and no slower than the program that measures. Each test must be
    right, but those between processes and that of all pairs at once may be impossible here, which is printed."""
    begin = time.monotonic()
    done = subprocess.run([HERE / "p2pshim", "doctor"], capture_output=True, text=True, timeout=100)
    took = time.monotonic() - begin
    print(done.stdout)
    json_run = subprocess.run([HERE / "p2pshim", "doctor", "--json"], capture_output=True, text=True, timeout=100)
    pairs = json.loads(json_run.stdout)["pairs"] if json_run.returncode == 0 else []
    measured = {(int(src), int(dst)): speed for src, dst, speed, *_ in
                Run([build("bandwidth.c"), "enables"]).numbers()}
    least = min((pair["gb_per_s"] / measured[pair["from"], pair["to"]] for pair in pairs), default=0)
    problems, impossible, between = [], [], ["ipc", "vmm"]
    for pair in pairs:
        wanted = ["copies", "loads", "stores", *between]
        wanted += ["flags"]
        wanted += ["atomics"] if pair["attributes"]["native_atomics"] else []
        wanted += ["all-pairs"] if len(pairs) > 1 else []
        for test in wanted:
            found = pair["parts"].get(test) or {"result": "not made", "detail": None}
            said = f"{pair['from']}>{pair['to']} {test} {found['result']}: {found['detail']}"
            if found["result"] == "untested" and test in (*between, "all-pairs"):
                impossible.append(said)
            elif found["result"] != "right":
                problems.append(said)
    judge(done.returncode == 0 and len(pairs) == len(measured) and not problems, "doctor",
          "; ".join(problems + impossible) or "every test of every pair is right"
          if pairs else f"ends with {done.returncode}: {done.stderr}")
    judge(took <= MOST_DOCTOR_SECONDS or len(pairs) > 2, "doctor, time", f"{took:.1f} s for {len(pairs)} pairs, limit {MOST_DOCTOR_SECONDS} for 2")
    doctor_full()
    judge(least >= LEAST_DOCTOR, "doctor, speeds", f"{len(pairs)} pairs verified, with at least {least:.3f} of the bandwidth that a program "
          f"measures, limit {LEAST_DOCTOR}; while all copy {[pair['all_pairs_at_once_gb_per_s'] for pair in pairs]} GB/s")


def doctor_levels():
    """How long each level of the doctor takes, three times each, and how it ends: a table, and no limit."""
    rows = [["level", "GPUs", "pairs", "1st, s", "2nd, s", "3rd, s", "verdict"]]
    for level, words in (("quick", ["--quick"]), ("plain", []), ("full", ["--full"])):
        times = []
        for _ in range(3):
            begin = time.monotonic()
            done = subprocess.run([HERE / "p2pshim", "doctor", "--json", *words], capture_output=True, text=True, timeout=600)
            times.append(time.monotonic() - begin)
        found = json.loads(done.stdout) if done.returncode in (0, 1, 3) else {"devices": [], "pairs": [], "verdict": done.stderr.strip()}
        rows.append([level, str(len(found["devices"])), str(len(found["pairs"])), *(f"{seconds:.1f}" for seconds in times), found["verdict"]])
        judge(done.returncode == 0, f"doctor_levels, {level}", f"{median(times):.1f} s for {len(found['devices'])} GPUs: {found['verdict']}")
    table(rows)


def doctor_full():
    """All memory of GPUs that nobody else uses must be right; where somebody does, that is printed. So is how long it takes."""
    begin = time.monotonic()
    done = subprocess.run([HERE / "p2pshim", "doctor", "--full", "--json"], capture_output=True, text=True, timeout=200)
    took = time.monotonic() - begin
    pairs = json.loads(done.stdout)["pairs"] if done.stdout else []
    found = [(f"{pair['from']}>{pair['to']}", pair["parts"].get("all-memory") or {"result": "not made", "detail": pair["detail"]}) for pair in pairs]
    said = [f"{name} {test['result']}: {test['detail']}" for name, test in found if test["result"] != "right"]
    bad = [name for name, test in found if test["result"] not in ("right", "untested")]
    judge(done.returncode == 0 and pairs and not bad, "doctor, all memory",
          f"{took:.1f} s; " + ("; ".join(said) or f"{len(pairs)} pairs right" if pairs else done.stderr))


def unfinished():
    """A process that ends in a copy, as one that hangs and is ended: what the report says of that copy."""
    program, traces = build("cases/ends_inside.c", "shared"), BUILD / "unfinished"
    ways = {"sync": "cudaMemcpyPeer", "async": "cudaMemcpyPeerAsync", "box": "cudaMemcpy3DPeer", "driver": "cuMemcpyPeer",
            "driver-async": "cuMemcpyPeerAsync", "driver-box": "cuMemcpy3DPeer"}
    traces.mkdir()
    runs = at_once(*(([program, way], {"preload": True, "trace": False, "P2PSHIM_TRACE": str(traces / way),
                                     "ENDS_BY_TICKS": "1", "P2PSHIM_STAGING": "driver", **APP}) for way in ways))
    problems = [run.ended() for run in runs if run.status != 3]
    for way, function in ways.items():
        read = subprocess.run([HERE / "p2pshim", "report", "--json", traces / way], capture_output=True, text=True)
        if read.returncode != 0:
            problems.append(f"{way}: {read.stderr}")
            continue
        calls = json.loads(read.stdout)["unfinished"]
        found = [[call[key] for key in ("function", "src", "dst", "bytes", "path", "why")] for call in calls]
        if found != [[function, 0, 1, 256 << 20, "staged", "access not enabled"]]:
            problems.append(f"{way}: {found}")
    judge(not problems, "unfinished", "; ".join(problems) or f"{len(ways)} copies that did not return have their pair, bytes and way")


def pointers():
    run, = at_once(([build("pointers.c")], {}))
    judge(run.status == 0, "driver hands out what it exports", run.out.strip())


def documents():
    """Commands of documents that need GPUs; documents and what runs them keep their places in the bundle."""
    done = subprocess.run([sys.executable, HERE / "tests/docs/check.py", "gpu"], capture_output=True, text=True)
    judge(done.returncode == 0, "documents", (done.stdout + done.stderr).strip()[-1000:])


def is_installed(module):
    try:
        return importlib.util.find_spec(module)
    except ModuleNotFoundError:  # not even the package that it is in
        return None


def client(name, module, script, seen, variables):
    if not is_installed(module):
        return report("skipped", name, f"the Python module {module} is not installed")
    same(name, [sys.executable, HERE / script], seen, (("auto", {}), ("app", APP), ("off", OFF)), True, **variables)


def main():
    begun = monotonic()
    query = ["nvidia-smi", "--query-gpu=index,name,driver_version", "--format=csv,noheader"]
    listed = subprocess.run(query, capture_output=True, text=True) if shutil.which("nvidia-smi") else None
    gpus = listed.stdout.strip().splitlines() if listed and listed.returncode == 0 else []
    print("GPUs: " + ("; ".join(gpus) or "none"))
    if len(gpus) < 2 or not shutil.which("nvcc"):
        sys.exit("run.sh: two GPUs and nvcc are needed; nothing was checked")
    subprocess.run("nvcc --version | tail -2 | head -1; ldd --version | head -1", shell=True)

    # Measurements come first, with the GPUs to themselves.
    for measurement in (speed.bandwidth, speed.first_use, speed.spinning, speed.held_up, speed.pinning, speed.staging, speed.staging_forms, speed.staging_beside, speed.exchange, speed.probe,
                        speed.alloc_cost, speed.read_back, speed.trace_cost, speed.trace_bandwidth):
        check(measurement.__name__, measurement)
    check("staging_pairs", speed.staging_pairs, len(gpus))
    check("links", speed.links)
    check("regular", regular.bandwidth)
    check("regular_graphs", regular.graphs)
    check("graph_copies", regular.graph_copies)
    check("arrays", regular.arrays)
    check("ucx", ucx.ucx)

    for name, module, counted in (("torch_pipeline", "torch", regular.torch_pipeline), ("cupy_copy", "cupy", regular.cupy_copy),
                                  ("jax_copy", "jax", regular.jax_copy),
                                  ("cuda_python_batch", "cuda.bindings", regular.cuda_python_batch)):
        if is_installed(module):
            check(name, counted)
        else:
            report("skipped", name, f"the Python module {module} is not installed")
    if len(sys.argv) > 1:
        check("busy_link", busy.busy_link)
        check("scatter", waits.scatter)
        check("implicit_waits", waits.implicit_waits, len(gpus))
        check("kept_waits", waits.kept_waits)
        check("spinning_often", waits.spinning_often)
        check("random_waits", waits.random_waits)
        check("random_threads", waits.random_threads)
        check("torch_step", regular.torch_step)
        check("random_graphs", sequences.random_graphs)
        check("staged_copies", sequences.staged_copies)
        check("freed_early", sequences.freed_early)
        check("graph_updated_later", sequences.graph_updated_later)
        check("blocked_stress", sequences.blocked_stress)
        check("gauntlet", gauntlet.on_gpus)
        check("other_process", sequences.other_process)
        check("between_processes", sequences.between_processes)
        check("asks_like", sequences.asks_like)
        for of_processes in processes.CHECKS:
            check(of_processes.__name__, of_processes)
    check("stack_depth", stacks.stack_depth)
    check("graphs_together", busy.graphs_together)
    check("legacy", legacy.legacy)
    check("doctor", doctor)
    check("doctor_levels", doctor_levels)
    check("admitted", admitted)
    check("hidden", hidden)
    check("captured_copies", captured)
    for name in ("guide_sample", "four_copies_sizes", "multithreaded", "entry_point"):
        check(name, case, name)
    check("driver_api", driver_api)
    check("unfinished", unfinished)
    check("pointers", pointers)

    for name, module, script, seen, variables in (
        ("CuPy memcpyPeer", "cupy", "cupy_peer.py", ["cuMemcpyPeer"], {}),
        ("cuda-python cudaMemcpyPeer", "cuda.bindings", "cuda_python_peer.py", ["cuMemcpyPeer"], {}),
        ("JAX device_put", "jax", "jax_device_put.py", ["cuMemcpyPeerAsync"], {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
        ("Numba copy_to_device", "numba", "numba_peer.py", ["cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess"], {}),
        ("PyTorch .to('cuda:1')", "torch", "torch_to.py", [], {}),
        ("NCCL all-reduce", "torch", "nccl_all_reduce.py", [], {}),
    ):
        check(name, client, name, module, script, seen, variables)
    neighbours.check_all()
    hangs.check_all()
    consumers.check_all()
    check("documents", documents)
    check("conformance", conformance)
    if len(sys.argv) > 1:
        check("measure", measure)

    shutil.rmtree(BUILD, ignore_errors=True)
    counts = {outcome: results.count(outcome) for outcome in ("ok", "FAILED", "skipped")}
    print(f"{counts['ok']} passed, {counts['FAILED']} failed, {counts['skipped']} skipped; {monotonic() - begun:.0f} s")
    if not results:
        sys.exit("run.sh: no check has such a name; nothing was checked")
    sys.exit(1 if counts["FAILED"] else 0)


main()
