#!/usr/bin/env python3
"""Opens exports of `p2pshim report --perfetto` in the viewers that they are for, for tests/it/perfetto.rs.

    check.py FOLDER BROWSER PAGES [PICTURES]

FOLDER has for each export NAME.json, and of the same traces NAME.report (`--json`) and NAME.calls (`--calls`). PAGES is the
folder of the viewers. With PICTURES also takes pictures into that folder.
"""

import collections
import functools
import http.server
import json
import pathlib
import re
import sys
import threading
import time
from decimal import Decimal

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "html"))
from browser import Browser

# Seconds until a viewer has to have an export.
PATIENCE = 60


class Export:
    """An export, and the report on the same traces."""

    def __init__(self, file):
        self.name, self.file = file.stem, file
        self.events = json.loads(file.read_text(), parse_float=Decimal)["traceEvents"]
        self.report = json.loads(file.with_suffix(".report").read_text())
        self.calls = file.with_suffix(".calls").read_text().splitlines()
        names = {(e["name"], e["pid"], e["tid"]): e["args"]["name"] for e in self.events if "name" in e.get("args", {}) and e["ph"] == "M"}
        self.process = lambda pid: names["process_name", pid, 0]
        # Calls may be of threads that have no name in the trace.
        self.thread = lambda pid, tid: names.get(("thread_name", pid, tid))

    def slices(self):
        """Process, thread, its name, category, name, and nanoseconds of begin and duration, of slices and marks."""
        found, open_slices = [], collections.defaultdict(list)
        for event in self.events:
            process, thread = track = (self.process(event["pid"]), event["tid"])
            at, slices = nanos(event["ts"]), open_slices[track]
            if event["ph"] == "B":
                slices.append(at)
            elif event["ph"] in "XEi" and event.get("s") != "p":
                begin = slices.pop() if event["ph"] == "E" else at
                took = at - begin if event["ph"] == "E" else nanos(event.get("dur", 0))
                found.append((process, thread, self.thread(event["pid"], thread) or "", event["cat"], event["name"], begin, took))
        return found

    def instants(self):
        """Process, category, name and nanoseconds of what the report knows the time of."""
        label = [gpu["label"] for gpu in self.report["gpus"]]
        start = min(file["started"] for file in self.report["files"])
        for one in self.report["decisions"]:
            yield self.process(one["file"] + 1), "decision", f"{label[one['src']]} > {label[one['dst']]}: {one['text']}", one["time"] - start
        for finding in self.report["findings"]:
            for one in finding["times"]:
                yield self.process(one["file"] + 1), "finding", finding["rule"], one["time"] - start

    def counters(self):
        """Process, name, nanoseconds and GB/s."""
        return [(self.process(e["pid"]), e["name"], nanos(e["ts"]), round(float(e["args"]["GB/s"]), 6)) for e in self.events if e["ph"] == "C"]

    def nested(self):
        """Process and thread of each call, when it began, its name, and in how many others it is, as `--calls` says it."""
        process = {(place(file), file["process"]): self.process(file["index"] + 1) for file in self.report["files"]}
        before = {}
        for line in self.calls:
            at, where, number, thread, inside, name = re.match(r"(\S+) \[(.*?)\] (\d+)/(\d+) ( *)(\w+)\(", line).groups()
            # A call that ends copies by hand has a record for each of them, all of its time: viewers put them in each other.
            depth = len(inside) // 2 + before.setdefault((number, thread, at, inside, name), 0)
            before[number, thread, at, inside, name] += " by hand" in line
            yield process[where, int(number)], int(thread), nanos(Decimal(at) * 1_000_000), name, depth

    def pairs(self):
        """Number, bytes and nanoseconds of the copies that were timed, by pair."""
        label = [gpu["label"] for gpu in self.report["gpus"]]
        said = {f"{label[p['src']]} > {label[p['dst']]}": [sum(way[f"device_{what}"] for way in p["paths"]) for what in ("calls", "bytes", "ns")]
                for p in self.report["pairs"]}
        return {pair: sums for pair, sums in said.items() if sums[0]}


def place(file):
    """The process's name in `--calls`."""
    return file["host"] + (f"/{file['rank']}" if file["rank"] else "")


def nanos(micros):
    whole = Decimal(micros) * 1000
    assert whole == int(whole), micros
    return int(whole)


class Pages(http.server.SimpleHTTPRequestHandler):
    """The viewers, and under /export/ the folder of exports."""

    def __init__(self, *arguments, pages, exports):
        self.exports = exports
        super().__init__(*arguments, directory=pages)

    def translate_path(self, path):
        inside = re.fullmatch(r"/export/([\w-]+\.json)", path)
        return str(self.exports / inside[1]) if inside else super().translate_path(path)

    def log_message(self, *_):
        pass


class Checks:
    def __init__(self, browser, address, pages, pictures):
        self.browser, self.address, self.pictures = browser, address, pictures
        self.legacy = next(pathlib.Path(pages).glob("v*/assets/catapult_trace_viewer.html")).relative_to(pages)
        self.done = self.failed = 0

    def equal(self, name, seen, expected):
        self.done += 1
        self.failed += seen != expected
        print(f"{'ok     ' if seen == expected else 'FAILED '} perfetto: {name}")
        if seen != expected:
            print(f"    seen {clipped(seen)}\n    not  {clipped(expected)}")

    def open(self, page):
        # Each export in a page of its own, whose state does not come from the one before.
        for url in ("about:blank", f"{self.address}/{page}"):
            self.browser.events.clear()
            self.browser.call("Page.navigate", url=url)
            self.browser.wait_for("Page.loadEventFired")

    def until(self, expression):
        deadline = time.monotonic() + PATIENCE
        while not self.browser.js(expression):
            if time.monotonic() > deadline:
                said = self.browser.js("document.body.innerText.slice(0, 1000)")
                sys.exit(f"perfetto: not for {PATIENCE} s: {expression}\nthe page says: {said}\nthe console: {self.browser.complaints()}")
            time.sleep(0.1)

    def picture(self, name):
        if self.pictures:
            # Until it has been drawn.
            time.sleep(2)
            self.browser.picture(pathlib.Path(self.pictures) / f"{name}.png", False)


def clipped(value):
    """The beginning of a value: values seldom differ in all of it."""
    text = repr(value)
    return text if len(text) < 3000 else f"{text[:3000]}… ({len(text)} letters)"


def differing(seen, expected):
    """Those of two lists that are not in both."""
    seen, expected = collections.Counter(seen), collections.Counter(expected)
    return sorted((seen - expected).elements()), sorted((expected - seen).elements())


# Rows of a query of Perfetto's trace processor.
ROWS = """(async sql => {
  const result = await app.trace.engine.query(sql), columns = result.columns(), rows = [];
  for (const row = result.iter({}); row.valid(); row.next())
    rows.push(columns.map(column => typeof row.get(column) === "bigint" ? Number(row.get(column)) : row.get(column)));
  return rows;
})"""
SLICES = """(select slice.id, slice.ts, slice.dur, slice.depth, slice.parent_id, slice.arg_set_id, slice.category, slice.name,
  process.name as process, thread.name as thread, thread.tid, process.pid from slice join thread_track on slice.track_id = thread_track.id
  join thread using (utid) join process using (upid))"""


def perfetto(t, export):
    def rows(sql):
        return [tuple(row) for row in t.browser.js(f"{ROWS}({json.dumps(sql)})")]

    def check(name, seen, expected):
        t.equal(f"{export.name}: {name}", seen, expected)

    def same(name, seen, expected):
        check(name, differing(seen, expected), ([], []))

    t.open(f"#!/?url={t.address}/export/{export.file.name}")
    t.until("typeof app !== 'undefined' && !!app.trace")
    bad = "select name, value from stats where value != 0 and (severity in ('error', 'data_loss') or source = 'trace' and name != 'json_display_time_unit')"
    check("Perfetto reads it without a complaint", rows(bad), [])
    check("nor does its page have any", t.browser.js("[app.trace.loadingErrors.length, app.trace.traceInfo.importErrors]"), [0, 0])
    check("no exception", [e["params"] for e in t.browser.events if e["method"] == "Runtime.exceptionThrown"], [])

    columns = "process, tid, ifnull(thread, ''), category, name, ts, dur"
    same("every slice and mark is there, to the nanosecond", rows(f"select {columns} from {SLICES}"), export.slices())

    nested = rows(f"select process, tid, ts, name, depth from {SLICES} where category not in ('copy', 'mark')")
    same("calls are in the calls that made them", nested, export.nested())

    instants = rows("""select process.name, category, slice.name, ts from slice join process_track on track_id = process_track.id join process using (upid)
        where category in ('decision', 'finding')""")
    same("decisions and findings are instants of their process", instants, export.instants())
    severities = rows("select distinct name, extract_arg(arg_set_id, 'args.severity') from slice where category = 'finding'")
    same("findings have their severity", severities, [(f["rule"], f["severity"]) for f in export.report["findings"] if f["times"]])
    counters = rows("""select process.name, t.name, ts, value from counter join process_counter_track t on t.id = track_id join process using (upid)""")
    same("a counter for each pair has its GB/s", [(process, name.removesuffix(" GB/s"), ts, round(value, 6)) for process, name, ts, value in counters], export.counters())
    check("in GB/s, says its name", [name for _, name, *_ in counters if not name.endswith(" GB/s")], [])
    rates = collections.defaultdict(list)
    for _, name, _, value in export.counters():
        rates[name].append(value)
    measured = {pair: size / took for pair, (_, size, took) in export.pairs().items() if took}
    check("pairs with a counter are those that were measured", sorted(rates), sorted(measured))
    far = [(pair, rate, rates[pair]) for pair, rate in measured.items() if not min(v for v in rates[pair] if v) * 0.99 <= rate <= max(rates[pair]) * 1.01]
    check("what the report says of a pair is within what the counter shows", far, [])
    ranks = [file["rank"] for file in export.report["files"] if file["rank"]]
    named = rows("select name from process where name like 'rank %'")
    same("processes are named by their ranks", [name.split(":")[0] for name, in named], [f"rank {rank}" for rank in ranks])

    functions = {(f["layer"], f["name"]): f["calls"] for f in export.report["functions"]}
    counted = rows(f"select category, name, count(*) from {SLICES} where category not in ('copy', 'mark', 'host') group by 1, 2")
    check("functions and how often they were called", {(layer, name): calls for layer, name, calls in counted}, functions)
    arguments = f"from {SLICES} s join args using (arg_set_id) where s.category not in ('copy', 'mark') and args.key = 'args.%s'"
    open_calls = rows(f"select pid - 1, tid, ts, name {arguments % 'unfinished'} and depth = 0")
    start = min(f["started"] for f in export.report["files"])
    # A call that only waits has no record, and so no slice.
    copies = [u for u in export.report["unfinished"] if u["bytes"] is not None]
    same("calls that never returned", open_calls, [(u["file"], u["thread"], u["started"] - start, u["function"]) for u in copies])
    errors = collections.Counter()
    for error in export.report["errors"]:
        errors[error["function"], error["name"]] += error["count"]
    seen = rows(f"select s.name, display_value, count(*) {arguments % 'result'} and depth = 0 group by 1, 2")
    check("results that are errors", {(f, r): n for f, r, n in seen if not r.lower().endswith("success")}, dict(errors))

    copies = rows(f"select thread, count(*), sum(extract_arg(arg_set_id, 'args.bytes')), sum(dur), max(depth) from {SLICES} where category = 'copy' group by tid, pid")
    check("no copy is inside another", [track for track, *_, depth in copies if depth], [])
    pairs = collections.defaultdict(lambda: [0, 0, 0])
    for track, *sums, _ in copies:
        pairs[pair_of(track)] = [a + b for a, b in zip(pairs[pair_of(track)], sums)]
    check("tracks are named by pairs, and have their copies", dict(pairs), export.pairs())
    flows = rows(f"""select copy.id, copy.thread, copy.ts >= call.ts, extract_arg(call.arg_set_id, 'args.from') || ' > ' || extract_arg(call.arg_set_id, 'args.to'),
        extract_arg(call.arg_set_id, 'args.bytes') = extract_arg(copy.arg_set_id, 'args.bytes')
        from flow join {SLICES} copy on copy.id = flow.slice_in join {SLICES} call on call.id = flow.slice_out where copy.category = 'copy' and call.category != 'copy'""")
    check("a flow leads from a call to each copy", (len(flows), len({flow[0] for flow in flows})), (sum(c[1] for c in copies),) * 2)
    check("of the same pair and size, and no earlier", [f for f in flows if (pair_of(f[1]), 1, 1) != (f[3], f[2], f[4])], [])

    shown = "app.trace.workspace.flatTracksOrdered.filter(track => !track.hasChildren).map(track => track.name)"
    t.until(f"{shown}.length >= {len(rows(f'select distinct pid, tid from {SLICES}'))}")
    shown = [re.sub(r" \d+$", "", name) for name in t.browser.js(shown)]
    order = [name for name in shown if " > " in name and not name.endswith(" GB/s")]
    label = [gpu["label"] for gpu in export.report["gpus"]]
    key = lambda name: (*(label.index(end) for end in pair_of(name).split(" > ")), int((re.search(r"\((\d+)\)$", name) or [0, 1])[1]))
    check("the page shows the tracks of a pair one below the other", order, sorted({track for track, *_ in copies}, key=key))
    t.browser.js("app.trace.commands.runCommand('dev.perfetto.ExpandAllGroups')")
    t.until("document.querySelectorAll('.pf-track__title-popup').length > 1")
    t.picture(export.name)


def pair_of(track):
    """The pair of a track, which has a number behind it from its second on."""
    return re.sub(r" \(\d+\)$", "", track)


# An export as Catapult's importer understood it.
MODEL = """(model => ({
  warnings: model.importWarnings.map(warning => warning.message),
  instants: model.getAllProcesses().flatMap(process => process.instantEvents.map(one => [process.name, one.category, one.title, one.start])),
  counters: model.getAllProcesses().flatMap(process => Object.values(process.counters).flatMap(counter => counter.series.flatMap(series =>
    series.samples.map(sample => [process.name, counter.name, sample.timestamp, sample.value])))),
  flows: model.flowEvents.map(flow => [flow.startSlice?.category, flow.endSlice?.category]),
  slices: model.getAllProcesses().flatMap(process => Object.values(process.threads).flatMap(thread => thread.sliceGroup.slices.map(slice => {
    let depth = 0;
    for (let outer = slice.parentSlice; outer; outer = outer.parentSlice) depth++;
    return [process.name, thread.tid, thread.name ?? "", slice.category, slice.title, slice.start, slice.duration, depth];
  }))),
}))(document.querySelector("x-profiling-view").timelineView.model)"""


def catapult(t, export):
    def check(name, seen, expected):
        t.equal(f"{export.name}: Catapult: {name}", seen, expected)

    def same(name, seen, expected):
        check(name, differing(seen, expected), ([], []))

    t.open(t.legacy)
    t.until("typeof tr !== 'undefined' && !!document.querySelector('x-profiling-view')")
    # As it is done by Perfetto's page, when it opens this one.
    t.browser.js(f"""fetch("/export/{export.file.name}").then(file => file.text()).then(text =>
        document.querySelector("x-profiling-view").setActiveTrace("{export.file.name}", text))""")
    t.until("!!document.querySelector('x-profiling-view').timelineView?.model?.bounds?.max")
    model = t.browser.js(MODEL)
    t.picture(f"{export.name}-catapult")
    check("no warnings", model["warnings"], [])
    expected = export.slices()
    # Its times are milliseconds since the first.
    first = min([begin for *_, begin, _ in expected] + [at for *_, at in export.instants()] + [at for *_, at, _ in export.counters()])
    slices = [(*names, first + round(begin * 1e6), round(took * 1e6), depth) for *names, begin, took, depth in model["slices"]]
    same("every slice and mark is there, to the nanosecond", [s[:-1] for s in slices], expected)
    at = lambda milliseconds: first + round(milliseconds * 1e6)
    same("decisions and findings are there", [(*one, at(start)) for *one, start in model["instants"]], export.instants())
    same("counters too", [(process, name, at(ts), round(value, 6)) for process, name, ts, value in model["counters"]], export.counters())
    calls = [(process, tid, ts, name, depth) for process, tid, _, layer, name, ts, _, depth in slices if layer not in ("copy", "mark")]
    same("calls are in the calls that made them", calls, export.nested())
    ends = {(begin in ("driver", "runtime"), end) for begin, end in model["flows"]}
    copies = sum(category == "copy" for _, _, _, category, *_ in expected)
    check("a flow leads from a call to each copy", (len(model["flows"]), ends), (copies, {(True, "copy")} if copies else set()))


def main(folder, program, pages, pictures=None):
    exports = [Export(file) for file in sorted(pathlib.Path(folder).glob("*.json"))]
    handler = functools.partial(Pages, pages=pages, exports=pathlib.Path(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    begun = time.monotonic()
    with Browser(program) as browser:
        browser.size(1400, 900)
        # Perfetto's page asks its makers' servers who is there, and this machine for a faster engine.
        browser.call("Network.setBlockedURLs", urls=["https://*", "http://127.0.0.1:9001/*"])
        t = Checks(browser, f"http://127.0.0.1:{server.server_port}", pages, pictures)
        for export in exports:
            perfetto(t, export)
            catapult(t, export)
    print(f"perfetto: {t.done - t.failed} of {t.done} checks passed, {time.monotonic() - begun:.0f} s")
    sys.exit(1 if t.failed or not exports else 0)


main(*sys.argv[1:])
