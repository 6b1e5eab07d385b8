#!/usr/bin/env python3
"""Checks the page of a report, for tests/it/html.rs.

    check.py hashes                 does the page's policy name its own style and script?
    check.py samples FOLDER         write the samples there, as JSON
    check.py pages FOLDER BROWSER [PICTURES]
                                    open the pages that were made of them; with PICTURES also take pictures into that folder
"""

import base64
import hashlib
import json
import os
import pathlib
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from browser import Browser
from samples import EVIL, SAMPLES

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "cli" / "src" / "report"
PARTS = SOURCE / "page"


def hashes():
    page = (PARTS / "page.html").read_text()
    right = page
    # In the order of html.rs.
    parts = re.findall(r'"page/(\w+\.js)"', (SOURCE / "html.rs").read_text())
    for kind, files in (("style", ["page.css"]), ("script", parts)):
        digest = base64.b64encode(hashlib.sha256(b"".join((PARTS / file).read_bytes() for file in files)).digest()).decode()
        right = re.sub(f"{kind}-src 'sha256-[^']*'", f"{kind}-src 'sha256-{digest}'", right)
    if page == right:
        return
    if os.environ.get("P2PSHIM_UPDATE") == "1":
        (PARTS / "page.html").write_text(right)
        return
    sys.exit("html: the style or the script has changed, and the hashes in page.html have not: browsers refuse them")


def samples(folder):
    for name, make in SAMPLES.items():
        (pathlib.Path(folder) / f"{name}.json").write_text(json.dumps(make(), ensure_ascii=False))


class Checks:
    def __init__(self, browser, folder, pictures):
        self.browser, self.folder, self.pictures = browser, pathlib.Path(folder), pictures
        self.failed, self.done = 0, 0

    def check(self, name, right, seen=""):
        self.done += 1
        self.failed += not right
        print(f"{'ok     ' if right else 'FAILED '} html: {name}" + ("" if right else f": {seen!r}"), flush=True)

    def equal(self, name, seen, expected):
        self.check(name, seen == expected, {"seen": seen, "expected": expected})

    def open(self, name, width=1280, height=900, theme="light", phone=False):
        self.browser.size(width, height, phone)
        self.browser.media(theme=theme)
        self.browser.open(self.folder / f"{name}.html")

    def quiet(self, name):
        self.equal(f"{name}: no errors in the console", self.browser.complaints(), [])
        self.equal(f"{name}: nothing is fetched", self.browser.requests(), [])

    def picture(self, name, whole=True):
        if self.pictures:
            self.browser.picture(pathlib.Path(self.pictures) / f"{name}.png", whole)

    def drawn(self):
        """Waits until what has changed is drawn."""
        self.browser.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def texts(self, selector):
        return self.browser.js(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.innerText.trim())")

    def number(self, selector):
        return self.browser.js(f"document.querySelectorAll({json.dumps(selector)}).length")

    def text(self, selector):
        # Without what only keeps a line from breaking.
        return self.browser.js(f"document.querySelector({json.dumps(selector)})?.innerText.replaceAll('\\u00a0', ' ') ?? null")


# Text that is too pale for what is behind it (below 4.5 to 1), as browsers compute the colours.
PALE = """(() => {
  const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  const over = (colours) => { pen.clearRect(0, 0, 1, 1); for (const c of colours) { pen.fillStyle = c; pen.fillRect(0, 0, 1, 1); }
    return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3); };
  const light = (rgb) => { const [r, g, b] = rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const pale = new Set(), seen = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("script, noscript, .hidden, #tip") || !element.checkVisibility()) continue;
    const backs = [];
    for (let e = element; e; e = e.parentElement) backs.unshift(getComputedStyle(e).backgroundColor);
    const id = backs.join() + getComputedStyle(element).color;
    if (!seen.has(id)) {
      const [front, back] = [light(over(["#fff", ...backs, getComputedStyle(element).color])), light(over(["#fff", ...backs]))];
      seen.set(id, (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05));
    }
    if (seen.get(id) < 4.5) pale.add(`${element.tagName}.${element.className} ${seen.get(id).toFixed(2)} ${node.data.trim().slice(0, 20)}`);
  }
  return [...pale];
})()"""


def verdict(t, name):
    """The page says what the report has, in its words."""
    said = [one for one in SAMPLES[name]()["verdict"] if one["word"] != "Incomplete"]
    t.equal(f"{name}: the verdict has its parts", t.texts("#verdict .tag"), [one["word"] for one in said])
    words = lambda one: (one["text"][:1].upper() + one["text"][1:])
    t.equal(f"{name}: the first of them stands large", t.text("h1").replace("\xa0", " "), words(said[0]))
    for one, shown in zip(said[1:], t.texts(".also li")):
        t.check(f"{name}: {one['word']}", words(one) in shown.replace("\xa0", " "), shown)


def two(t):
    b = t.browser
    t.open("two")
    t.quiet("two")
    verdict(t, "two")
    t.equal("two: what is behind it, without markup", t.text("h1 + p").removesuffix("Show").strip(), "Staged because: access not enabled. P2PSHIM_ACCESS=auto, the default, would have enabled it.")
    t.equal("two: and where to read on", t.browser.js("document.querySelector('h1 + p a').hash"), "#pairs")
    t.equal("two: a cell for each pair, and for each GPU", t.number(".heat tbody td"), 4)
    t.equal("two: paths have letters", t.texts(".heat td.used b"), ["D", "S"])
    colours = "[...document.querySelectorAll('.heat td.used')].map(e => getComputedStyle(e).backgroundColor)"
    by_path = b.js(colours)
    b.click(".choice label:nth-of-type(2)")
    t.equal("two: the map switches to bytes", [x.split("\n")[0] for x in t.texts(".heat td.used")], ["107.4 GB", "80.7 GB"])
    t.check("two: and has other colours then", b.js(colours) != by_path and len(set(b.js(colours))) == 2, b.js(colours))
    b.key("ArrowRight", 39)
    t.equal("two: by key to GB/s", [x.split("\n")[0] for x in t.texts(".heat td.used")], ["391.4", "38.0"])

    x, y = b.middle(".heat tbody tr:nth-child(2) td")
    b.mouse("mouseMoved", x, y)
    tip = t.text("#tip")
    t.check("two: the pointer on a cell shows the pair", all(p in tip for p in ("GPU 1 > GPU 0", "80.7 GB", "access not enabled")), tip)
    b.mouse("mouseMoved", 5, 5)
    t.equal("two: and off it nothing", b.js("document.getElementById('tip').hidden"), True)
    b.click(".heat tbody tr:nth-child(1) td:nth-of-type(2)")
    t.equal("two: a click chooses the pair", t.text(".map .card h3"), "GPU 0 > GPU 1")
    b.key("ArrowDown", 40)
    b.key("ArrowLeft", 37)
    t.equal("two: arrow keys move to another", t.text(".map .card h3"), "GPU 1 > GPU 0")
    t.check("two: and show it", "GPU 1 > GPU 0" in t.text("#tip"), t.text("#tip"))
    b.key("Escape", 27)
    t.equal("two: escape takes the tip away", b.js("document.getElementById('tip').hidden"), True)

    t.equal("two: the timeline has both pairs and their sum", t.texts(".lane:not(.scale) > span:first-child"), ["Direct and staged", "GPU 1 > GPU 0", "GPU 0 > GPU 1"])
    box = b.js("(() => { const b = document.querySelector('.lane.whole .strip').getBBox(); return [b.y < -0.9, b.y + b.height > 0.4]; })()")
    t.equal("two: direct is drawn above the line, staged below it", box, [True, True])
    x, y = b.middle(".lane.whole .strip")
    b.mouse("mouseMoved", x, y)
    tip = t.text("#tip")
    t.check("two: the pointer on the timeline shows time and bytes", "4.8 s to 4.84 s" in tip and "direct" in tip and "staged" in tip, tip)
    b.js("document.querySelector('.lane.whole .strip').focus()")
    b.key("ArrowRight", 39)
    t.check("two: so do arrow keys", "4.84 s to 4.88 s" in t.text("#tip"), t.text("#tip"))

    t.equal("two: findings have their severities", t.texts(".findings summary .tag"), ["performance", "performance", "note"])
    t.equal("two: the first is open", b.js("[...document.querySelectorAll('details')].map(e => e.open)"), [True, False, False])
    t.check("two: with its places", "halo+0x2d10 exchange_columns (halo.c:240)" in t.text(".findings .sites"), t.text(".findings .sites"))
    b.click(".findings details:nth-child(2) summary")
    t.check("two: another opens", "640 copies of 8 bytes" in t.text(".findings details:nth-child(2) .body"))

    head = "#functions th:nth-child(3)"
    names = "#functions tbody td:first-child"
    sort = f"document.querySelector('{head}').getAttribute('aria-sort')"
    b.click(f"{head} button")
    t.equal("two: a click sorts by calls, most first", (t.texts(names)[:2], b.js(sort)), (["cudaMemcpyPeerAsync", "cuMemcpyPeerAsync"], "descending"))
    b.key("Enter", 13)
    t.equal("two: the enter key turns it round", (t.texts(names)[-1], b.js(sort)), ("cuMemcpyPeerAsync", "ascending"))
    b.click("#functions th:nth-child(1) button")
    t.equal("two: names are sorted from a to z", t.texts(names)[0], "cuCtxEnablePeerAccess")
    t.equal("two: one column alone is sorted", t.number("#functions th[aria-sort]:not([aria-sort=none])"), 1)
    b.click("#errors .open")
    t.check("two: a row opens and names places", "halo+0x12f4" in t.text("#errors tr.inner"), t.text("#errors tr.inner"))
    b.click("#errors .open")
    t.equal("two: and closes", t.number("#errors tr.inner"), 0)
    t.equal("two: nothing stands there about calls that never returned", t.number("#unfinished"), 0)

    ground = "getComputedStyle(document.body).backgroundColor"
    light = b.js(ground)
    t.equal("two: text stands out, light", b.js(PALE), [])
    t.picture("two-light")
    b.click("#theme")
    dark = b.js(ground)
    t.check("two: the button makes it dark", dark != light, (light, dark))
    t.equal("two: and says so", b.js("document.getElementById('theme').getAttribute('aria-pressed')"), "true")
    b.click("#theme")
    t.equal("two: and light again", b.js(ground), light)
    t.open("two", theme="dark")
    t.equal("two: dark, if the system is", b.js(ground), dark)
    t.equal("two: text stands out, dark", b.js(PALE), [])
    t.picture("two-dark")
    b.media(media="print", theme="dark")
    t.check("two: light on paper", b.js(ground) in (light, "rgba(0, 0, 0, 0)"), b.js(ground))
    b.js("dispatchEvent(new Event('beforeprint'))")
    t.equal("two: with nothing closed", b.js("[...document.querySelectorAll('details')].every(e => e.open)"), True)
    t.check("two: and can be printed", len(b.call("Page.printToPDF", printBackground=False)["data"]) > 10_000)
    b.size(760, 1000)
    t.equal("two: no table is cut off on paper", b.js("[...document.querySelectorAll('table.rows')].filter(e => e.scrollWidth > e.parentElement.clientWidth).length"), 0)
    t.picture("two-print")
    t.quiet("two, after all that")


def phone(t):
    b = t.browser
    for name in SAMPLES:
        for width in (360, 390):
            t.open(name, width, 740, phone=True)
            t.equal(f"{name}: no sideways scrolling at {width} pixels", b.js("document.documentElement.scrollWidth"), width)
        if name in ("two", "eight", "blocked", "killed"):
            t.picture(f"{name}-phone")
    for name, theme, picture in (("eight", "light", "report-phone"), ("blocked", "dark", "report-phone-dark")):
        t.open(name, 390, 1100, theme=theme, phone=True)
        b.js("document.querySelector('#pairs').scrollIntoView()")
        t.drawn()
        t.picture(picture, False)
    t.open("eight", 390, 740, phone=True)
    t.drawn()
    sides = "document.querySelector('#pairs .scroller').className"
    sign = "getComputedStyle(document.querySelector('#pairs .scroller'), '::after').display"
    t.equal("eight: a sign says that the map goes on to the right", (b.js(sides), b.js(sign), b.js("document.querySelector('#pairs .hint').checkVisibility()")),
            ("scroller right", "flex", True))
    b.js("new Promise(done => { const e = document.querySelector('#pairs .scroll'); e.addEventListener('scroll', done, { once: true }); e.scrollLeft = 1e6; })")
    t.drawn()
    t.equal("eight: at its end to the left", b.js(sides), "scroller left")
    t.check("eight: and the names of rows are still there", b.js("document.querySelector('#pairs tbody th').getBoundingClientRect().left") >= 0)
    b.js("document.querySelector('#pairs .scroll').scrollLeft = 0")
    at = b.js("(() => { const e = document.querySelector('.lane.whole .strip'); e.scrollIntoView({ block: 'center' }); const r = e.getBoundingClientRect(); return [r.x, r.y + r.height / 2, r.width]; })()")
    b.touch([(at[0] + at[2] * part, at[1]) for part in (0.25, 0.3, 0.4, 0.5)])
    t.check("eight: a finger drawn over the timeline zooms", "s to" in t.text("#timeline .zoom output"), t.text("#timeline .zoom output"))
    t.picture("eight-phone-zoomed", False)
    t.open("eight", 390, 740, phone=True)
    b.tap(".heat tbody tr:nth-child(1) td:nth-of-type(2)")
    t.equal("eight: a tap chooses the pair", t.text(".map .card h3"), "GPU 0 > GPU 1")
    t.check("eight: and shows it", "GPU 0 > GPU 1" in (t.text("#tip") or ""), t.text("#tip"))


def zoom(t):
    """The brush, by mouse and by keys."""
    b = t.browser
    t.open("eight")
    said = lambda: t.text("#timeline .zoom output")
    boxes = "[...document.querySelectorAll('#timeline .strip')].map(e => e.getAttribute('viewBox'))"
    before = b.js(boxes)
    x, y = b.middle(".lane.whole .strip")
    b.drag((x - 100, y), (x + 100, y))
    after = b.js(boxes)
    t.check("zoom: a drag over all copies zooms the lanes, and not itself", after[0] == before[0] and len(set(after[1:])) == 1 and after[1] != before[1], after[:3])
    part = [float(one.split()[0]) for one in said().replace(" s", "").split(" to ")]
    t.check("zoom: to what was chosen", 3 < part[0] < part[1] < 7, said())
    t.equal("zoom: which is marked there", b.js("document.querySelector('#timeline .frame').getAttribute('visibility')"), "visible")
    t.picture("eight-zoomed", False)
    x, y = b.middle("#timeline .lanes .lanes .strip")
    b.drag((x - 60, y), (x + 60, y))
    t.check("zoom: a drag over a lane zooms further", said() not in ("", None) and b.js(boxes)[1] != after[1], said())
    b.click("#timeline .zoom button:nth-of-type(3)")
    t.equal("zoom: a button shows all again", (b.js(boxes), said()), (before, ""))
    b.js("document.querySelector('#timeline .lanes .lanes .strip').focus()")
    b.key("+", 187)
    t.check("zoom: the plus key zooms in", said() != "", said())
    b.key("0", 48)
    t.equal("zoom: zero shows all", said(), "")
    for _ in range(3):
        b.key("ArrowRight", 39)
    for _ in range(9):
        b.key("ArrowRight", 39, shift=True)
    b.key("Enter", 13)
    t.check("zoom: what was selected by keys is shown", "0.1 s to 0.58 s" in said(), said())
    for _ in range(12):
        b.click("#timeline .zoom button:nth-of-type(1)")
    t.equal("zoom: it ends at a few buckets", b.js("document.querySelector('#timeline .zoom button').disabled"), True)
    t.quiet("zoom, after all that")


def blocked(t):
    b = t.browser
    t.open("blocked")
    t.quiet("blocked")
    verdict(t, "blocked")
    t.equal("blocked: the pair has a letter of its own, and a legend", (t.texts(".heat .used.blocked b"), "peer access loses data or hangs" in t.text("#pairs .legend")), (["!", "!"], True))
    colours = "new Set([...document.querySelectorAll('.heat .used')].map(e => getComputedStyle(e).backgroundColor)).size"
    t.equal("blocked: and a colour of its own", b.js(colours), 3)
    t.equal("blocked: it is chosen first", t.text(".map .card h3"), "GPU 2 > GPU 3")
    panel = t.text(".map .card .fault")
    t.check("blocked: its panel says what is wrong with it", "265204 of 266236 bytes copied from device 2 to device 3 were wrong" in panel and "IOMMU translates" in panel, panel)
    t.equal("blocked: markup is rendered", t.texts(".map .card .fault code"), ["p2pshim doctor"])
    t.check("blocked: nothing else is said of it", "never enables" not in t.text(".map .card") and "cudaDeviceEnablePeerAccess" not in t.text(".map .card"), t.text(".map .card"))
    first = [t.texts("#all-pairs tbody td:first-child")[:2], t.texts("#timeline .lane:not(.scale) > span:first-child")[1:3]]
    t.equal("blocked: they are first in every list", first, [["GPU 2 > GPU 3", "GPU 3 > GPU 2"]] * 2)
    b.click(".heat tbody tr:nth-child(4) td:nth-of-type(3)")
    t.check("blocked: the way back says what was seen the other way", t.text(".map .card .fault").split("\n")[-1].startswith("GPU 2 > GPU 3: Data does not arrive"), t.text(".map .card .fault"))
    b.click(".heat tbody tr:nth-child(1) td:nth-of-type(2)")
    card = t.text(".map .card")
    t.check("blocked: a rate from samples has its sign, and says how many", "~391.3 GB/s (26 of 142 timed)" in card and "host p50" in card, card)
    rows = [row.split("\t") for row in t.texts(".map .card .sizes tbody tr")]
    t.equal("blocked: copies by size", [[row[0], row[1], *row[3:]] for row in rows], [
        ["64 to 128 KiB", "D", "6.6 MB", "100", "~13.3 GB/s"], ["64 to 128 KiB", "S", "262.1 kB", "4", "0.0004 GB/s"],
        ["64 to 128 MiB", "D", "8.6 GB", "42", "~391.3 GB/s"]])
    shown = b.js("document.getElementById('main').innerText")
    odd = re.findall(r"\d\.\d{4,}(?! GB/s)|\b0\.0 |\de-\d|[`|<]|(?<!\s)>|NaN|undefined", shown)
    t.equal("blocked: no number has too many digits, and no markup is raw", odd, [])
    kinds = t.texts("#timeline .legend span")
    t.equal("blocked: what happened is on the timeline", kinds[2:], ["lost data, hung or never returned", "decision", "mark of the program"])
    x, y = b.js("(() => { const e = document.querySelector('.lane.whole .strip'); e.scrollIntoView({ block: 'center' }); const r = e.getBoundingClientRect(); return [r.x + 1, r.y + 20]; })()")
    b.mouse("mouseMoved", x, y)
    t.check("blocked: the pointer on it tells it", "GPU 2 > GPU 3: data does not arrive" in t.text("#tip"), t.text("#tip"))
    b.mouse("mouseMoved", 5, 5)
    t.equal("blocked: text stands out, light", b.js(PALE), [])
    t.picture("blocked-light")
    t.open("blocked", theme="dark")
    t.equal("blocked: text stands out, dark", b.js(PALE), [])
    b.size(1280, 1290)
    t.picture("report-dark", False)


def killed(t):
    t.open("killed")
    t.quiet("killed")
    t.check("killed: what is missing stands first", t.text("#verdict").startswith("Not everything is known: bytes and calls are lower bounds.") and t.texts(".gaps li")[1] == "Rank 5: the file ends in the middle of a block.", t.text("#verdict"))
    verdict(t, "killed")
    t.check("killed: numbers are lower bounds", t.text(".figures dd").startswith("at least"), t.text(".figures dd"))
    t.equal("killed: the worst processes are on top", [row.split("\t")[:4:3] for row in t.texts("#processes tbody tr")[:2]], [["rank 5", "SIGKILL"], ["rank 2", "exit 3"]])
    t.picture("killed-light")


def eight(t):
    b = t.browser
    t.open("eight")
    t.quiet("eight")
    verdict(t, "eight")
    t.equal("eight: a cell for each pair, and for each GPU", (t.number(".heat tbody td"), t.number(".heat td.used")), (64, 56))
    odd = t.texts("#processes tbody tr:first-child .odd, #processes tbody tr:first-child .open")
    t.equal("eight: the process that differs is on top, and what differs is bold", (odd[0], len(odd), odd[2:]), ("rank 5", 4, ["75 %", "3.145 s"]))
    t.equal("eight: those of the others are not", t.number("#processes .odd"), 3)
    t.equal("eight: equal decisions stand once", [text.split("\t")[-2:] for text in t.texts("#decisions tbody tr")], [["9", "rank 0, rank 1, rank 2, rank 3, …"]])
    labels = b.js("[...document.querySelectorAll('.heat tbody td')].map((cell) => cell.getAttribute('aria-label'))")
    t.check("eight: each cell says what it is when it is read out", len(labels) == 64 and labels[0].startswith("Within GPU 0, ") and all(" calls" in label for label in labels[1:8]), labels[:2])
    t.equal("eight: all letters are in the legend", t.texts(".legend .key"), ["D", "S", "N", "M"])
    b.click(".lanes ~ .more")
    t.equal("eight: the timeline shows the other pairs", t.number(".lane:not(.scale)"), 57)
    t.check("eight: its legend has what is on it", t.texts("#timeline .legend")[0].split("\n") == ["direct", "staged", "finding", "decision"], t.texts("#timeline .legend"))
    b.click("#timeline .choice label:nth-of-type(2)")
    names = t.texts("#timeline .lane:not(.scale) > span:first-child")
    t.equal("eight: the lanes are those of ranks on demand, the odd one first", (names[:2], len(names)), (["Direct and staged", "rank 5"], 9))
    b.click("#timeline .choice label:nth-of-type(1)")
    t.equal("eight: text stands out, light", b.js(PALE), [])
    t.open("eight", theme="dark")
    t.equal("eight: text stands out, dark", b.js(PALE), [])
    t.picture("eight-dark")
    t.open("eight")
    t.picture("eight-light")
    # Those of docs/images/.
    b.size(1280, 1290)
    t.picture("report", False)
    b.click(".choice label:nth-of-type(2)")
    t.equal("eight: text stands out on bytes", b.js(PALE), [])
    t.picture("eight-bytes", False)


def hang(t):
    t.open("hang")
    t.quiet("hang")
    verdict(t, "hang")
    row = " ".join(t.texts("#unfinished tbody td"))
    t.check("hang: a table tells where and since when", all(p in row for p in ("halo+0x2c41", "process 4100", "staged: access not enabled", "7.100 s", "2.5 s")), row)
    t.equal("hang: findings, the gravest first", t.texts(".findings summary .tag"), ["hazard", "performance", "performance", "note"])
    t.picture("hang-light")


def wrong(t):
    t.open("wrong")
    t.quiet("wrong")
    verdict(t, "wrong")
    t.equal("wrong: calls are listed, not urgent", (t.texts("#unfinished h2"), t.number("#unfinished.urgent")), (["1 call cut off", "1 call under way"], 0))


def sixty_four(t):
    b = t.browser
    begun = time.monotonic()
    t.open("sixty_four")
    took = time.monotonic() - begun
    print(f"        html: 4,032 pairs and 1,000 files took {took:.1f} s")
    t.quiet("sixty_four")
    t.equal("sixty_four: a cell for each pair, and for each GPU", (t.number(".heat tbody td"), t.number(".heat td.used")), (4096, 4032))
    begun = time.monotonic()
    for view in (2, 3, 1):
        b.click(f".choice label:nth-of-type({view})")
    t.drawn()
    print(f"        html: three switches of the map took {time.monotonic() - begun:.1f} s")
    rows = "#all-pairs tbody tr"
    t.equal("sixty_four: the table begins with 20 pairs", t.number(rows), 20)
    b.click("#all-pairs .more")
    t.equal("sixty_four: and shows all on demand", t.number(rows), 4032)
    b.click("#all-pairs th:nth-child(3) button")
    most = max(json.loads((t.folder / "sixty_four.json").read_text())["pairs"], key=lambda p: p["bytes"])
    t.check("sixty_four: sorted by bytes, the largest is on top", t.texts(f"{rows}:first-child td")[0] == f"GPU {most['src']} > GPU {most['dst']}")
    t.check("sixty_four: files with problems are on top", "700" in "".join(t.texts("#processes tbody tr")[:2]), t.texts("#processes tbody tr")[:2])
    t.open("sixty_four")
    t.picture("sixty_four-light")
    t.open("sixty_four", theme="dark")
    b.click(".choice label:nth-of-type(2)")
    t.picture("sixty_four-dark-bytes", False)


def hosts(t):
    b = t.browser
    t.open("hosts")
    t.quiet("hosts")
    t.equal("hosts: one map for each host", (t.number("select option"), t.number(".heat tbody td")), (16, 64))
    before = t.text(".map .card h3")
    b.js("(() => { const s = document.querySelector('select'); s.selectedIndex = 5; s.dispatchEvent(new Event('change')); })()")
    t.check("hosts: another can be chosen", t.text(".map .card h3") != before, before)
    t.picture("hosts-light")


def others(t):
    b = t.browser
    t.open("all_direct")
    t.quiet("all_direct")
    verdict(t, "all_direct")
    axis = t.texts(".ticks span")
    t.equal("all_direct: times are since the start of the run, not of the first copy", (axis[0], axis[-1]), ("4 s", "12 s"))
    t.equal("all_direct: a pair that is alone has one lane", t.texts("#timeline .lane:not(.scale) > span:first-child"), ["GPU 0 > GPU 1"])
    t.equal("all_direct: nothing was staged, and the legend has no colour for it", t.texts("#timeline .legend"), ["direct"])
    t.equal("all_direct: good news are green", b.js("document.querySelector('#verdict .tag').className"), "tag good")
    t.equal("all_direct: lines of Python are listed, the most seen first", t.texts("#lines tbody tr:first-child td"),
            ["train.py:88 in Trainer.step < main.py:5 in main", "GPU 0 > GPU 1", "9", "512", "9.0 MB", "12 µs", "libtorch_cuda.so+0x1f04c2"])
    t.equal("all_direct: with their files", b.js("document.querySelector('#lines tbody span').title"), "/home/u/train.py")
    t.equal("all_direct: what calls a static runtime is listed", t.texts("#callers tbody tr:first-child td"),
            ["app+0x3021 main (app.c:12)", "GPU 0 > GPU 1", "11", "512", "libtorch_cuda.so+0x1f04c2"])
    t.picture("all_direct-light")
    t.open("carried")
    t.quiet("carried")
    verdict(t, "carried")
    t.equal("carried: and by GPU", [row.split("\t")[-4:] for row in t.texts("#environment .more tbody tr")],
            [["142.9 GB", "42.9 GB", "0 B", "0 B"], ["0 B", "0 B", "142.9 GB", "42.9 GB"]])
    t.open("processes")
    t.equal("processes: pairs with memory of others are drawn as others are", t.texts(".heat .used b"), ["B", "D", "D", "D"])
    t.check("processes: on one GPU it is said so", "between processes on one GPU" in t.text("#pairs .legend") and "within" not in t.text("#pairs .legend"), t.text("#pairs .legend"))
    b.click(".heat tbody tr:nth-child(1) td:nth-of-type(2)")
    shown = t.text(".map .card")
    t.check("processes: a pair has its own copies and those between processes", "42.0 GB direct, between processes" in shown and "1.0 GB direct ·" in shown, shown)
    t.check("processes: and names whose memory it is", "rank 0 pushed to memory of rank 1 · 42.0 GB" in shown, shown)
    t.equal("processes: a list has who did what", t.texts("#between-processes tbody td:nth-child(2)"), ["pushed to memory of rank 1", "pushed to memory of another process",
            "pulled from memory of rank 1", "pushed to memory of rank 1"])
    t.check("processes: what lies nobody knows where is not between GPUs", "48.0 GB" in t.text(".figures"), t.text(".figures"))
    t.open("no_better_way")
    t.equal("no_better_way: the pair has a letter of its own", t.texts(".heat .used b"), ["D", "N"])
    t.open("empty")
    t.quiet("empty")
    t.equal("empty: it says so", t.text("#verdict .tag"), "Nothing to say")
    t.equal("empty: and shows no empty tables", t.number("table"), 0)
    t.picture("empty-light")


def nasty(t):
    b = t.browser
    t.open("nasty")
    t.quiet("nasty")
    b.js("document.querySelectorAll('.open, .heat td, summary, .more').forEach(e => e.click())")
    t.quiet("nasty, with everything open")
    t.equal("nasty: no string became a script or markup", (b.js("window.hit === undefined"), t.number("img"), t.number("script")), (True, 0, 2))
    shown = b.js("document.body.textContent")
    for text in (EVIL[0], EVIL[1], EVIL[3], EVIL[7], EVIL[8]):
        t.check(f"nasty: shown as it is: {text[:30]}", text in shown)
    t.check("nasty: what would turn the text round is spelt out", "\\u{202e}gnp.exe\\u{7}\\u{1b}[31m" in b.js("document.getElementById('main').textContent"))
    t.equal("nasty: long names do not widen the page", b.js("document.documentElement.scrollWidth"), 1280)
    t.picture("nasty-light")
    b.js("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hit = 1\"><iframe srcdoc=\"<script>top.hit = 1</script>\"></iframe>')")
    asked = b.js("fetch('https://example.com/').then(() => 'fetched', () => 'refused')")
    t.equal("nasty: the policy refuses what gets into the page all the same", (b.js("window.hit === undefined"), asked), (True, "refused"))
    t.equal("nasty: and nothing leaves the machine", b.requests(), [])


def real(t):
    """The command's report on a program's trace: page and model speak of the same."""
    report = json.loads((t.folder / "real.json").read_text())
    t.open("real")
    t.quiet("real")
    between = [pair for pair in report["pairs"] if pair["src"] != pair["dst"] and pair["bytes"]]
    t.check("real: the program's pairs are there", len(between) >= 2, report["pairs"])
    t.check("real: so are its functions, findings, errors and decisions",
            all(report[part] for part in ("functions", "findings", "errors", "decisions", "files", "gpus")))
    t.equal("real: the verdict is that of the report", t.texts("#verdict .tag"), [one["word"] for one in report["verdict"] if one["word"] != "Incomplete"])
    shown = t.browser.js("document.getElementById('main').textContent")
    for name in {part["name"] for part in report["functions"]} | {part["rule"] for part in report["findings"]}:
        t.check(f"real: {name} is shown", name in shown)
    table = (t.folder / "real.txt").read_text().split("\nFunctions, by their time on the host\n")[1].splitlines()[1:]
    said = {tuple(row.split()[:2]): [cell.replace("-", "–") for cell in row.split()[-3:]] for row in table}
    rows = [row.split("\t") for row in t.texts("#functions tbody tr")]
    seen = {(row[0], row[1]): row[4:7] for row in rows if (row[0], row[1]) in said}
    t.check("real: host times are those of the text, to the digit", len(seen) > 3 and seen == {name: said[name] for name in seen}, [seen, said])
    t.check("real: nothing is undefined", "undefined" not in shown and "NaN" not in shown)
    t.picture("real-light")


def pages(folder, program, pictures=None):
    if pictures:
        pathlib.Path(pictures).mkdir(parents=True, exist_ok=True)
    with Browser(program) as browser:
        t = Checks(browser, folder, pictures)
        begun = time.monotonic()
        for part in (two, phone, eight, zoom, blocked, killed, hang, wrong, sixty_four, hosts, others, nasty, real):
            part(t)
    print(f"html: {t.done - t.failed} of {t.done} checks passed, {time.monotonic() - begun:.0f} s")
    sys.exit(1 if t.failed else 0)


{"hashes": hashes, "samples": samples, "pages": pages}[sys.argv[1]](*sys.argv[2:])
