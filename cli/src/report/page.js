// Shows the report that lies in this page as JSON, as `p2pshim report --json` prints it.
//
// Whatever comes from a trace goes into the page as text, never as markup. Nothing is loaded.

const list = (value) => (Array.isArray(value) ? value : []);
const given = (value) => value !== null && value !== undefined && value !== false && value !== "";
const number = (value) => (Number.isFinite(value) ? value : 0);
const sum = (items, value = (item) => item) => list(items).reduce((total, item) => total + number(value(item)), 0);
const most = (items) => list(items).reduce((a, b) => Math.max(a, number(b)), 0);

// ---- Words for values

const BYTES = [[1e15, "PB"], [1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]];
const TIMES = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];

/** Three digits, and no zeros at the end of a fraction. */
const digits = (value) => (value >= 100 ? Math.round(value).toLocaleString("en-GB") : String(+value.toPrecision(3)));

function scaled(value, steps) {
  // 999.7 MB is as good as 1 GB.
  const [size, unit] = steps.find(([step]) => value >= step * 0.9995) || steps[steps.length - 1];
  return `${digits(value / size)} ${unit}`;
}

const known = (value, words) => (Number.isFinite(value) ? words(value) : "–");
const count = (value) => known(value, (n) => n.toLocaleString("en-GB"));
const bytes = (value) => known(value, (n) => scaled(n, BYTES));
const rate = (value) => known(value, (n) => `${digits(n)} GB/s`);
const several = (n, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;
const some = (items, n) => items.slice(0, n).join(", ") + (items.length > n ? ", …" : "");

function percent(part, whole) {
  const share = whole > 0 ? (100 * part) / whole : 0;
  if (share > 0 && share < 1) return "<1 %";
  return share > 99 && share < 100 ? ">99 %" : `${Math.round(share)} %`;
}

function duration(value) {
  if (!(value >= 120e9)) return known(value, (ns) => scaled(ns, TIMES));
  const seconds = Math.round(value / 1e9);
  return seconds < 3600 ? `${Math.floor(seconds / 60)} min ${seconds % 60} s`
    : `${count(Math.floor(seconds / 3600))} h ${Math.floor((seconds % 3600) / 60)} min`;
}

/** Nanoseconds since 1970, in UTC. */
function moment(ns) {
  const date = new Date(ns / 1e6);
  return given(ns) && +date ? `${date.toISOString().slice(0, 19).replace("T", " ")} UTC` : "–";
}

/** Characters that do not show, or that turn the text around, by their numbers. */
function plain(text) {
  return String(text).replace(/[\0-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]/g,
    (char) => `\\u{${char.codePointAt(0).toString(16)}}`);
}

// ---- Elements

/** An element; what is no element among its children becomes text. */
const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (given(value)) element.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child instanceof Node) element.append(child);
    else if (given(child)) element.append(plain(child));
  }
  return element;
}

const main = document.getElementById("main");
const code = (text) => (given(text) ? el("code", {}, text) : "–");
const quiet = (...children) => el("span", { class: "quiet" }, children);
const bad = (...children) => el("span", { class: "bad" }, children);
const alarming = (n) => (n > 0 ? bad(count(n)) : count(n));
const facts = (rows) => rows.filter(([, value]) => given(value)).map(([term, value]) => [el("dt", {}, term), el("dd", {}, value)]);
const head = (title, note, ...controls) =>
  el("div", { class: "head" }, el("h2", {}, title), el("span", { class: "quiet small" }, note), controls);
const button = (style, words, act) => {
  const made = el("button", { type: "button", class: style }, words);
  made.addEventListener("click", act);
  return made;
};

// ---- The data

let data;
try {
  data = JSON.parse(document.getElementById("data").textContent);
} catch (error) {
  main.append(el("p", { class: "bad" }, "The data in this page is damaged. Make the report again."));
  throw error;
}
const [files, gpus, pairs, functions] = [data.files, data.gpus, data.pairs, data.functions].map(list);
const [errors, findings, decisions, unfinished] = [data.errors, data.findings, data.decisions, data.unfinished].map(list);
const lost = data.lost || {};
const timeline = data.timeline || {};
const nvlink = data.nvlink || {};
const linkOf = new Map(list(nvlink.gpus).map((row) => [row.gpu, row]));
const lanes = list(timeline.pairs);
const place = ({ src, dst }) => `${src} ${dst}`;
const gpuAt = new Map(gpus.map((gpu) => [gpu.index, gpu]));
const fileAt = new Map(files.map((file) => [file.index, file]));
const pairAt = new Map(pairs.map((pair) => [place(pair), pair]));
const laneAt = new Map(lanes.map((lane) => [place(lane), lane]));

const gpuName = (index) => (Number.isInteger(index) ? gpuAt.get(index)?.label || `GPU #${index}` : "not known");
/** Its number alone, where there is no room. */
const gpuNumber = (index) => /\d+$/.exec(gpuName(index))?.[0] ?? String(index);
const way = ({ src, dst }) => (Number.isInteger(src) || Number.isInteger(dst) ? `${gpuName(src)} → ${gpuName(dst)}` : "–");
const fileName = (index) => {
  const file = fileAt.get(index) || {};
  return given(file.rank) ? `rank ${file.rank}` : file.process ? `process ${file.process}` : baseName(file.path ?? "–");
};
const baseName = (path) => String(path).split("/").pop();
// Damaged files may be from any time.
const sound = files.filter((file) => list(file.problems).length === 0);
const times = (what) => (sound.length > 0 ? sound : files).map((file) => file[what]).filter(Number.isFinite);
const started = Math.min(...times("started"));
const ended = Math.max(...times("ended"));
const length = ended > started ? ended - started : null;
const minus = (a, b) => (Number.isFinite(a) && Number.isFinite(b) ? a - b : null);
const since = (ns) => known(minus(ns, started), (after) => `${(after / 1e9).toFixed(3)} s`);

// By its letter a path is known without its colour.
const PATHS = {
  direct: ["D", "direct"],
  staged: ["S", "staged"],
  forced: ["N", "staged, no better path"],
  mixed: ["M", "partly direct, partly staged"],
  same: ["L", "within one GPU"],
  host: ["H", "from or to the host"],
  unknown: ["?", "path not known"],
};
// HIP maps memory for a copy on first use, whether access is enabled or not: that is direct.
const KINDS = { "same-device": "same", "mapped on first use": "direct", direct: "direct", staged: "staged", host: "host" };
const kindOf = (path) => (Object.hasOwn(KINDS, path ?? "") ? KINDS[path] : "unknown");
const NO_BETTER_WAY = /no (hardware )?path|slower/;
const BROKEN = /blocked|vetoed|lost data/;

// What the rest asks of a pair.
for (const pair of pairs) {
  pair.paths = list(pair.paths);
  const of = (kind) => pair.paths.filter((path) => kindOf(path.path) === kind);
  const ways = of("staged").sort((a, b) => number(b.bytes) - number(a.bytes));
  pair.direct = sum(of("direct"), (path) => path.bytes);
  pair.staged = sum(ways, (path) => path.bytes);
  pair.avoidable = sum(ways.filter((path) => !NO_BETTER_WAY.test(path.why)), (path) => path.bytes);
  pair.why = [...new Set(ways.map((path) => path.why).filter(Boolean))].join("; ");
  // What is below a twentieth does not make a pair mixed: the first copies of a pair are staged by design.
  const few = 0.05 * (pair.direct + pair.staged);
  const largest = [...pair.paths].sort((a, b) => number(b.bytes) - number(a.bytes) || number(b.calls) - number(a.calls))[0];
  pair.kind = Math.min(pair.direct, pair.staged) > few ? "mixed" : kindOf(largest?.path);
  if (pair.kind === "staged" && pair.avoidable === 0) pair.kind = "forced";
  const time = sum(pair.paths, (path) => path.device_ns);
  pair.rate = time > 0 ? sum(pair.paths, (path) => path.device_bytes) / time : null;
}
const between = pairs.filter(({ src, dst }) => Number.isInteger(src) && Number.isInteger(dst) && src !== dst);
const used = between.filter((pair) => pair.calls > 0);
const [total, direct, staged, avoidable] = ["bytes", "direct", "staged", "avoidable"].map((what) => sum(between, (pair) => pair[what]));
const worstFirst = (a, b) => b.avoidable - a.avoidable || b.staged - a.staged || number(b.bytes) - number(a.bytes);
/** Calls that failed; those of the driver may lie within those of the runtime. */
const failed = most(["runtime", "driver"].map((layer) =>
  sum(errors.filter((error) => (error.layer === "runtime") === (layer === "runtime")), (error) => error.count)));
/** What the loss is a part of. One that is summed over processes or devices is no part of the run's time. */
const share = Number.isFinite(lost.seconds) && length >= lost.seconds * 1e9 ? length : null;

// ---- The verdict

// What to do about a reason for staging: the first that fits.
const REMEDIES = [
  [/never enabled/, "Run without P2PSHIM_ACCESS=app, so that p2pshim enables peer access; or call cudaDeviceEnablePeerAccess on both devices of a pair."],
  [/not yet worth/, "A pair is enabled once it has copied more than 1 MiB or 16 times. Usually there is nothing to do."],
  [/pool/, "The other device cannot access the pool. Run without P2PSHIM_POOLS=app, or call cudaMemPoolSetAccess."],
  [/mapped/, "The program mapped the memory for one device only. Call cuMemSetAccess for the other."],
  [BROKEN, "These pairs lost data or hung in verification. `p2pshim doctor` names the likely cause, such as an IOMMU."],
  [/denied/, "P2PSHIM_ACCESS=off or P2PSHIM_DENY keeps these pairs staged. Remove it if that is not intended."],
  [/no (hardware )?path/, "These GPUs cannot access each other. `p2pshim doctor` shows which can: place neighbours on those."],
  [/limit/, "A context can have 8 peers. Copy along a ring or a tree, so that each GPU has fewer."],
  [/busy/, "The devices were busy when the pairs were to be verified. Copy once before the work begins."],
  [/captur|unproven|verif/, "The pairs were not verified at that time. See the decisions."],
  [/slower/, "Direct copies were measured to be slower. There is nothing to do."],
];
const remedy = (why) => REMEDIES.find(([pattern]) => pattern.test(why))?.[1] || "";

/** Why bytes were staged, and how many, the most first. */
function reasons() {
  const found = new Map();
  for (const pair of between) {
    for (const path of pair.paths.filter((path) => kindOf(path.path) === "staged")) {
      const why = path.why || "no reason recorded";
      const entry = found.get(why) || { why, bytes: 0, pairs: new Set() };
      entry.bytes += number(path.bytes);
      entry.pairs.add(pair);
      found.set(why, entry);
    }
  }
  return [...found.values()].sort((a, b) => b.bytes - a.bytes);
}

/** A call that is under way for less nanoseconds need not hang. */
const SOON = 1e9;

/** A way, and why it was taken. */
const wayOf = (row) => (row.path && row.why ? `${row.path}: ${row.why}` : row.path);

/** What a call copies. */
const copied = (call) => [call.function, Number.isInteger(call.src) && Number.isInteger(call.dst) && way(call), call.bytes && `of ${bytes(call.bytes)}`].filter(Boolean).join(" ");

/** What there is to say, the worst first: how bad, a word for it, a sentence, what to do, and where to read on. */
function verdicts() {
  const said = [];
  const say = (level, word, text, todo, to) => said.push({ level, word, text, todo, to });
  const why = reasons();
  const graded = (severity) => findings.filter((finding) => finding.severity === severity);
  const rules = (those) => some(those.map((finding) => `${finding.rule} (${count(finding.count)} ×)`), 3);

  const inUse = decisions.filter((decision) => decision.verified === "in use");
  if (inUse.length > 0) {
    const pairs = some([...new Set(inUse.map(way))], 3);
    say("bad", "Data wrong", `Verification of ${pairs} lost data or hung, and the program still uses peer access there.`,
      "Run it with `P2PSHIM_ACCESS=off`, or with `P2PSHIM_DENY` for the pair, to send its copies through the host.", "decisions");
  }
  const hanging = unfinished.filter((call) => !(call.age_ns < SOON));
  if (hanging.length > 0) {
    const [first] = hanging;
    const what = [copied(first), first.path && `, ${wayOf(first)}`, files.length > 1 && `, in ${fileName(first.file)}`].filter(Boolean).join("");
    const since = Number.isFinite(first.age_ns) ? ` ${hanging.length > 1 ? "have" : "has"} not returned for ${duration(first.age_ns)}` : " never returned";
    say("bad", "Never returned", `${several(hanging.length, "call")}${since}${hanging.length > 1 ? ", such as" : ":"} ${what}.`,
      "The program hung there, or was killed while it waited. The table shows where. To find out whether peer access hangs, run it with `--access off`.", "unfinished");
  }
  const broken = new Set(why.filter((reason) => BROKEN.test(reason.why)).flatMap((reason) => [...reason.pairs]));
  if (broken.size > 0) {
    say("bad", "Broken path", `Peer access loses data on ${several(broken.size, "pair")}. p2pshim sent their copies through the host.`, remedy("blocked"), "pairs");
  }
  const hazards = graded("hazard");
  if (hazards.length > 0) {
    const first = list(hazards[0].sites)[0];
    const site = first && placeName(first);
    say("bad", "Data at risk", `Calls succeed, and the data may be wrong: ${rules(hazards)}.`,
      `${site ? `Begin at ${site}. ` : ""}The findings say what is wrong there, and how to correct it.`, "findings");
  }
  const could = number(lost.could_be_direct_bytes);
  const reason = why.find((one) => !NO_BETTER_WAY.test(one.why) && !BROKEN.test(one.why));
  if (could > 0 && staged > 0) {
    const time = Number.isFinite(lost.seconds) ? lost.seconds * 1e9 : null;
    const much = could >= total * 0.01 || time >= number(length) * 0.01;
    const cost = time === null ? "What that cost is not known."
      : `About ${duration(time)}${share ? ` of ${duration(share)}` : ""} was lost${share ? "" : ", summed over pairs"}.`;
    say(much ? "warn" : "note", much ? "Slow" : "Staged",
      `${bytes(could)} of ${bytes(total)} between GPUs (${percent(could, total)}) went through the host but could be direct${
        reason ? `: ${reason.why.replace(/^staged:? */, "")}` : ""}. ${cost}`, reason && remedy(reason.why), "pairs");
  } else if (staged > 0 && broken.size === 0) {
    say(avoidable >= total * 0.01 ? "warn" : "note", "Staged", `${bytes(staged)} of ${bytes(total)} between GPUs went through the host: ${why[0].why}.`, remedy(why[0].why), "pairs");
  }
  if (total - direct - staged > total * 0.01) {
    say("warn", "Not known", `The path of ${bytes(total - direct - staged)} is not known.`, "Managed memory and memory of other processes are not followed.", "pairs");
  }
  if (errors.length > 0) {
    // Enabled already, and not enabled: programs expect them.
    const expected = (error) => error.code === 704 || error.code === 705;
    const [worst] = [...errors].sort((a, b) => expected(a) - expected(b) || number(b.count) - number(a.count));
    const harmless = expected(worst);
    say(harmless ? "note" : "warn", "Failed calls", `${several(failed, "call")} failed, such as ${worst.function} with ${worst.name || worst.code}${
      harmless ? ", which many programs expect" : ""}.`, "The places are listed under Errors.", "errors");
  }
  const wrong = graded("error");
  if (wrong.length > 0) {
    say("warn", "Wrong calls", `Calls fail, or would if the library checked: ${rules(wrong)}.`, "The findings name the place, the parameter and the remedy.", "findings");
  }
  const slow = graded("performance").filter((finding) => !(could > 0 && /^P2P-staged/.test(finding.rule)));
  if (slow.length > 0) {
    say("warn", "Slow calls", `Calls take longer than necessary: ${rules(slow)}.`, "The findings say what to do instead.", "findings");
  }
  const running = files.filter((file) => file.running && file.last_copy);
  if (running.length > 0) {
    const last = running.map((file) => file.last_copy).sort((a, b) => b.age_ns - a.age_ns)[0];
    say("note", "Still runs", `${count(running.length)} ${running.length > 1 ? "processes" : "process"} still ran when this page was written. ${running.length > 1
      ? "The one that has waited longest copied last" : "It copied last"} ${duration(last.age_ns)} before: ${copied(last)}.`, "", "files");
  }
  const dropped = sum(files, (file) => file.dropped);
  const faulty = files.filter((file) => list(file.problems).length > 0).length;
  if (dropped > 0 || faulty > 0) {
    const parts = [dropped > 0 && `${several(dropped, "call")} found no room`, faulty > 0 && `${count(faulty)} of ${several(files.length, "file")} had problems`];
    say("note", "Incomplete", `${parts.filter(Boolean).join(", and ")}: the figures may be too small.`, "", "files");
  }
  if (nvlink.text) say("note", "NVLink", [nvlink.text, nvlink.more].filter(Boolean).join(" "), "", "environment");
  const order = ["bad", "warn", "note"];
  said.sort((a, b) => order.indexOf(a.level) - order.indexOf(b.level));
  if (said.length > 0 && said[0].level !== "note") return said;

  const first = files.length === 0
    ? ["note", "Nothing to show", "There were no trace files to report on.", "Run a program with a trace, and pass its files to `p2pshim report`."]
    : total === 0
      ? ["note", "No copies", "No copies between GPUs were recorded.", "The program may not have got that far, or it copies with functions that are not intercepted."]
      : ["good", "Fine", `${staged === 0 ? `All ${bytes(total)}` : `${bytes(direct)} of ${bytes(total)}`} between GPUs went directly${
        staged >= total * 0.01 ? `, and the rest had no better path${why.length > 0 ? `: ${why[0].why}` : ""}` : ""}.`, "There is nothing to do."];
  return [{ level: first[0], word: first[1], text: first[2], todo: first[3] }, ...said];
}

function verdict() {
  const [first, ...others] = verdicts();
  const link = (to) => to && ["\u00a0", el("a", { href: `#${to}` }, "Show")];
  return el("div", { id: "verdict" },
    el("span", { class: `tag ${first.level}` }, first.word), el("h1", {}, first.text),
    el("p", { class: "todo" }, first.level !== "good" && el("b", {}, "What to do: "), first.todo || "See below.", link(first.to)),
    others.length > 0 && el("ul", { class: "also" }, others.map((other) =>
      el("li", {}, el("span", { class: `tag ${other.level}` }, other.word), el("span", {}, other.text, link(other.to))))));
}

function figures() {
  const parts = [["direct", direct], ["staged", staged], ["other", total - direct - staged]].filter(([, part]) => part > 0);
  const bar = el("div", { class: "bar", "aria-hidden": "true" }, parts.map(([name]) => el("i", { class: name })));
  parts.forEach(([, part], index) => { bar.children[index].style.flexGrow = part / total; });
  const figure = (term, value, more) => el("div", {}, el("dt", {}, term), el("dd", {}, value), el("dd", { class: "more" }, more));
  const graded = (severity) => several(findings.filter((finding) => finding.severity === severity).length, severity);
  return [
    el("dl", { class: "figures" },
      figure("Between GPUs", [bytes(total), bar],
        parts.map(([name, part]) => `${name} ${bytes(part)} (${percent(part, total)})`).join(" · ") || "nothing was copied"),
      figure("Lost, estimated", lost.seconds === 0 ? "none" : known(lost.seconds, (n) => duration(n * 1e9)),
        share ? `${percent(lost.seconds * 1e9, share)} of the run` : Number.isFinite(lost.seconds) ? "summed over pairs" : "not known"),
      figure("Copies", count(sum(between, (pair) => pair.calls)), `on ${several(used.length, "pair")}`),
      figure("Host time", duration(sum(between, (pair) => pair.host_ns?.total)), "in all threads"),
      figure("Findings", count(findings.length), `${graded("hazard")}, ${graded("error")}`),
      figure("Failed calls", count(failed), unfinished.length > 0 ? bad(`${count(unfinished.length)} never returned`) : "all returned")),
    lost.basis && el("p", { class: "basis quiet small" }, `The estimate: ${lost.basis}`),
  ];
}

// ---- The tip beside the pointer

const tip = document.getElementById("tip");
let tipOwner = null;

function showTip(x, y, owner, title, ...lines) {
  tipOwner = owner;
  tip.replaceChildren(el("b", {}, title), ...lines.filter(Boolean).map((line) => el("span", {}, line)));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.max(8, Math.min(x + 14, document.documentElement.clientWidth - width - 8));
  const top = y + 18 + height > innerHeight ? Math.max(4, y - height - 12) : y + 18;
  tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
}

function hideTip() {
  tip.hidden = true;
  tipOwner = null;
}

addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
addEventListener("scroll", hideTip, { capture: true, passive: true });
addEventListener("pointerdown", (event) => { if (!tipOwner?.contains(event.target)) hideTip(); });
const whenMouse = (act) => (event) => { if (event.pointerType === "mouse") act(); };

// ---- Tables

/** A column of text: `value` is what it is sorted by, and shown if there is no `cell`. */
const text = (head, value, cell, style) => ({ head, value, style, cell: cell || ((row) => value(row) ?? "–") });
const short = (head, value, cell) => text(head, value, cell, "keep");
const codes = (head, value) => text(head, value, (row) => code(value(row)), "keep");
const figure = (head, value, words = count) => ({ head, value, right: true, style: "right", cell: (row) => words(value(row)) });
const hostTimes = ["p50", "p99", "max", "total"].map((what) =>
  figure(what === "p50" ? "Host p50" : what, (row) => row.host_ns?.[what], duration));

/** A table that a click on a header sorts. `detail(row)` makes what a row opens. */
function table(label, columns, rows, { sort = null, down = true, detail = null } = {}) {
  let [shown, by, descending] = [20, sort, down];
  const body = el("tbody", {});
  const heads = columns.map((column, index) => el("th", { scope: "col", class: column.right && "right" },
    button(null, column.head, () => {
      descending = by === index ? !descending : Boolean(column.right);
      by = index;
      render();
    })));
  const more = button("pill more", "", () => { shown = rows.length; render(); });

  function compare(a, b) {
    const [left, right] = [a, b].map((row) => columns[by].value(row) ?? null);
    if (left === null || right === null) return (left === null) - (right === null);
    const order = typeof left === "number" && typeof right === "number" ? left - right
      : String(left).localeCompare(String(right), "en", { numeric: true });
    return descending ? -order : order;
  }

  function line(row) {
    const cells = columns.map((column) => el("td", { class: column.style }, column.cell(row)));
    const made = el("tr", {}, cells);
    if (detail) {
      const opener = button("open", [...cells[0].childNodes], () => {
        const open = opener.getAttribute("aria-expanded") === "true";
        opener.setAttribute("aria-expanded", String(!open));
        if (open) made.nextElementSibling.remove();
        else made.after(el("tr", { class: "inner" }, el("td", { colspan: columns.length }, detail(row))));
      });
      opener.setAttribute("aria-expanded", "false");
      cells[0].append(opener);
    }
    return made;
  }

  function render() {
    const sorted = by === null ? rows : [...rows].sort(compare);
    heads.forEach((th, index) => th.setAttribute("aria-sort", by !== index ? "none" : descending ? "descending" : "ascending"));
    body.replaceChildren(...sorted.slice(0, shown).map(line));
    more.hidden = rows.length <= shown;
    more.textContent = `Show all ${count(rows.length)}`;
  }

  render();
  return [
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
      el("table", { class: "rows" }, el("caption", { class: "hidden" }, `${label}; a header sorts by its column.`),
        el("thead", {}, el("tr", {}, heads)), body)),
    more,
  ];
}

const lineName = ({ file, line, function: name }) => `${String(file).split("/").pop()}:${line} in ${name}`;
const placeName = ({ site, caller, python }) => (python ? `${lineName(python)}, ${caller || site}` : caller || site);
const sites = (places) => (list(places).length === 0 ? el("p", { class: "quiet small" }, "The place is not known.")
  : el("ul", { class: "sites small" }, list(places).map((one) => el("li", {}, quiet(`${count(one.count)} ×`), code(placeName(one))))));

// ---- The heat map

const VIEWS = {
  path: ["Path"],
  bytes: ["Bytes", (pair) => pair.bytes, bytes],
  rate: ["GB/s", (pair) => pair.rate, rate],
};
const key = (kind) => el("span", { class: `key ${kind}`, title: PATHS[kind][1] }, PATHS[kind][0]);

/** All about one pair. */
function card(pair) {
  const lane = laneAt.get(place(pair));
  const host = pair.host_ns || {};
  const name = (path) => (kindOf(path.path) === "unknown" ? path.path : PATHS[kindOf(path.path)][1]);
  return [
    el("h3", {}, way(pair)),
    el("ul", {}, pair.paths.map((path) => el("li", {}, key(kindOf(path.path)), el("span", {},
      `${bytes(path.bytes)} ${name(path)}${path.why ? `: ${path.why}` : ""}`,
      quiet(` · ${several(path.calls, "call")}${Number.isFinite(path.gb_per_s) ? ` · ${rate(path.gb_per_s)}` : ""}`))))),
    pair.kind !== "direct" && remedy(pair.why) && el("p", { class: "small" }, remedy(pair.why)),
    el("dl", {}, facts([
      ["Bytes", `${bytes(pair.bytes)} in ${several(pair.calls, "call")}`],
      ["Link", pair.link || "not known"],
      ["Peer access", { true: "possible", false: "not possible" }[pair.access] || "not known"],
      ["Errors", alarming(pair.errors)],
      ["Host time", `p50 ${duration(host.p50)}, p99 ${duration(host.p99)}, max ${duration(host.max)}`],
    ])),
    lane && strip(lane, peak(lane), way(pair)),
  ];
}

/** The GPUs that a map has: those of one host, if no pair joins hosts; the busiest, if there are too many. */
function maps() {
  const hostOf = (index) => gpuAt.get(index)?.host ?? "";
  const all = [...new Set([...gpus.map((gpu) => gpu.index), ...pairs.flatMap(({ src, dst }) => [src, dst])])].filter(Number.isInteger);
  const hosts = new Map();
  for (const index of all) {
    if (!hosts.has(hostOf(index))) hosts.set(hostOf(index), { gpus: [], bytes: 0, staged: 0, avoidable: 0 });
    hosts.get(hostOf(index)).gpus.push(index);
  }
  if (hosts.size > 1 && between.every((pair) => hostOf(pair.src) === hostOf(pair.dst))) {
    for (const pair of between) {
      const host = hosts.get(hostOf(pair.src));
      host.bytes += number(pair.bytes);
      host.staged += pair.staged;
      host.avoidable += pair.avoidable;
    }
    return [...hosts].sort(([, a], [, b]) => worstFirst(a, b)).map(([host, of]) =>
      ({ name: `${plain(host || "host not known")}: ${of.staged > 0 ? `${bytes(of.staged)} staged` : bytes(of.bytes)}`, gpus: of.gpus }));
  }
  if (all.length <= 128) return [{ gpus: all }];
  const busiest = new Set([...between].sort(worstFirst).flatMap(({ src, dst }) => [src, dst]));
  return [{ gpus: [...busiest].slice(0, 64).sort((a, b) => a - b), note: `64 of ${count(all.length)} GPUs; All pairs has the rest.` }];
}

/** Where a value lies between nothing and the largest, by powers if they differ much. */
function scaleOf(values) {
  const real = values.filter((value) => value > 0);
  const high = most(real);
  const low = real.reduce((a, b) => Math.min(a, b), high);
  const wide = high > low * 50;
  const share = (value) => 0.12 + 0.88 * (wide ? Math.log(value / low) / Math.log(high / low) : value / high);
  return { low: wide ? low : 0, high, wide, share: (value) => (value > 0 ? share(value) : 0) };
}

function heatMap() {
  const choices = maps();
  let [view, map, size, chosen, rows] = ["path", choices[0], "large", null, []];
  const grid = el("table", { role: "grid", "aria-label": "Pairs: sources in rows, destinations in columns" });
  const legend = el("div", { class: "legend" });
  const about = el("div", { class: "card", "aria-live": "polite" });
  const frame = el("div", { class: "map" }, el("div", {}, el("div", { class: "scroll" }, grid), legend), about);
  const cells = () => rows.flat();

  function build() {
    const many = map.gpus.length;
    size = many <= 12 ? "large" : many <= 20 ? "medium" : "small";
    frame.classList.toggle("wide", many > 8);
    rows = map.gpus.map((src) => map.gpus.map((dst) => {
      const cell = el("td", { role: "gridcell", tabindex: "-1" });
      cell.about = { src, dst, pair: pairAt.get(`${src} ${dst}`) };
      return cell;
    }));
    const name = (index) => (many <= 8 && choices.length === 1 ? gpuName(index) : gpuNumber(index));
    const header = (scope) => (index) => el("th", { scope, title: plain(gpuName(index)) }, name(index));
    grid.replaceChildren(
      el("thead", {}, el("tr", {}, el("td", {}, size === "small" ? "" : "from ↓ to →"), map.gpus.map(header("col")))),
      el("tbody", {}, map.gpus.map((src, row) => el("tr", {}, header("row")(src), rows[row]))));
    const worst = cells().filter((cell) => cell.about.pair).sort((a, b) => worstFirst(a.about.pair, b.about.pair))[0];
    paint();
    choose(worst);
    (worst || rows[0][0]).setAttribute("tabindex", "0");
  }

  function paint() {
    const [, value, words] = VIEWS[view];
    const shown = cells().map((cell) => cell.about.pair).filter(Boolean);
    const scale = value && scaleOf(shown.filter((pair) => pair.src !== pair.dst).map(value));
    grid.className = `heat ${size} ${value ? "by-value" : "by-path"}`;
    for (const cell of cells()) {
      const { src, dst, pair } = cell.about;
      const styles = [src === dst && "self", pair ? `used ${pair.kind}` : "none", pair?.errors > 0 && "errors", cell === chosen && "chosen"];
      const letter = pair && PATHS[pair.kind][0];
      let content = src === dst ? ["·"] : [];
      if (pair && !value) {
        content = [el("b", {}, letter), size === "large" && el("small", {}, bytes(pair.bytes))];
      } else if (pair) {
        const part = Math.min(1, scale.share(value(pair)));
        cell.style.setProperty("--v", `${Math.round(part * 100)}%`);
        styles.push(part > 0.5 && "half", part > 0.75 && "strong");
        content = [size !== "small" && words(value(pair)).replace(/ GB\/s$/, ""), size === "large" && el("small", {}, letter)];
      }
      cell.replaceChildren(...content.filter(Boolean));
      cell.className = styles.filter(Boolean).join(" ");
    }
    const kinds = new Set(shown.map((pair) => pair.kind));
    legend.replaceChildren(...(value
      ? [el("span", {}, words(scale.low), el("i", {}), words(scale.high)), scale.wide && el("span", {}, "logarithmic")]
      : Object.keys(PATHS).filter((kind) => kinds.has(kind)).map((kind) => el("span", {}, key(kind), PATHS[kind][1]))
    ).filter(Boolean));
    if (shown.some((pair) => pair.errors > 0)) legend.append(el("span", {}, bad("▁"), "calls failed"));
    if (map.note) legend.append(el("span", {}, map.note));
  }

  function choose(cell) {
    if (cell && !cell.about.pair) return;
    chosen?.classList.remove("chosen");
    chosen = cell;
    chosen?.classList.add("chosen");
    about.replaceChildren(el("div", {}, cell ? card(cell.about.pair) : quiet("No copies.")));
  }

  function tell(cell, x, y) {
    const { pair } = cell.about;
    const title = cell.about.src === cell.about.dst ? `Within ${gpuName(cell.about.src)}` : way(cell.about);
    if (!pair) return showTip(x, y, grid, title, "no copies");
    return showTip(x, y, grid, title,
      `${bytes(pair.bytes)} in ${several(pair.calls, "call")}${pair.rate === null ? "" : `, ${rate(pair.rate)}`}`,
      `${PATHS[pair.kind][1]}${pair.why ? `: ${pair.why}` : ""}`,
      pair.errors > 0 && several(pair.errors, "error"));
  }

  const on = (name, act) => grid.addEventListener(name, (event) => {
    const cell = event.target.closest("tbody td");
    if (cell) act(cell, event);
  });
  on("pointermove", (cell, event) => tell(cell, event.clientX, event.clientY));
  grid.addEventListener("pointerleave", whenMouse(hideTip));
  on("click", (cell, event) => {
    choose(cell);
    tell(cell, event.clientX, event.clientY);
  });
  on("focusin", (cell) => {
    for (const other of grid.querySelectorAll('[tabindex="0"]')) other.setAttribute("tabindex", "-1");
    cell.setAttribute("tabindex", "0");
    choose(cell);
    const { right, bottom } = cell.getBoundingClientRect();
    if (cell.matches(":focus-visible")) tell(cell, right - 10, bottom - 14);
  });
  on("focusout", hideTip);
  on("keydown", (cell, event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const row = rows.findIndex((line) => line.includes(cell));
    rows[row + step[0]]?.[rows[row].indexOf(cell) + step[1]]?.focus();
  });

  const modes = el("fieldset", { class: "choice" }, el("legend", { class: "hidden" }, "What the map shows"),
    Object.entries(VIEWS).map(([name, [label]]) => {
      const input = el("input", { type: "radio", name: "view", checked: name === view });
      input.addEventListener("change", () => { view = name; paint(); });
      return el("label", {}, input, el("span", {}, label));
    }));
  const hosts = choices.length > 1 && el("select", { class: "pill", "aria-label": "Host" },
    choices.map(({ name }, index) => el("option", { value: index }, name)));
  if (hosts) hosts.addEventListener("change", () => { map = choices[hosts.value]; build(); });
  if (map.gpus.length > 0) build();
  return [head("Pairs of GPUs", "Rows are sources, columns destinations.", hosts, modes), frame];
}

// ---- The timeline

const bucket = number(timeline.bucket_ns);
const peak = (lane) => Math.max(most(lane.direct), most(lane.staged));
const buckets = (lane) => Math.max(1, list(lane.direct).length, list(lane.staged).length);
const span = most(lanes.map(buckets)) * bucket;

// From the beginning of the run, like all times of the page.
const begin = Math.max(0, minus(timeline.start, started));

/** A time on the axis, such that buckets differ. */
function clock(ns) {
  const [size, unit] = TIMES.find(([step]) => begin + span >= step) || TIMES[3];
  return `${+((begin + ns) / size).toFixed(Math.max(0, Math.ceil(Math.log10(size / (bucket || 1)))))} ${unit}`;
}

/** Bytes per bucket as an outline from the axis: upwards if `sign` is -1. */
function outline(values, highest, sign) {
  let [path, last] = ["M0 0", 0];
  list(values).forEach((value, index) => {
    // What is little must still be seen.
    const height = value > 0 ? Math.max(0.05, value / highest) : 0;
    if (height !== last) path += `H${index}V${(sign * height).toFixed(3)}`;
    last = height;
  });
  return `${path}H${list(values).length}V0Z`;
}

/** The timeline of one pair: direct above the axis, staged below it. */
function strip(lane, highest, name) {
  const many = buckets(lane);
  let at = null;
  const mark = svg("rect", { class: "mark", y: -1, height: 2, width: 1, visibility: "hidden" });
  const picture = svg("svg", {
    class: "strip", viewBox: `0 -1 ${many} 2`, preserveAspectRatio: "none", role: "img", tabindex: "0",
    "aria-label": plain(`${name} over time: ${bytes(sum(lane.direct))} direct, ${bytes(sum(lane.staged))} staged. Arrow keys move.`),
  }, svg("path", { class: "direct", d: outline(lane.direct, highest, -1) }), svg("path", { class: "staged", d: outline(lane.staged, highest, 1) }),
  svg("path", { class: "axis", d: `M0 0H${many}` }), mark);

  function tell(index, x, y) {
    at = Math.max(0, Math.min(many - 1, index));
    mark.setAttribute("x", at);
    mark.setAttribute("visibility", "visible");
    showTip(x, y, picture, `${clock(at * bucket)} to ${clock((at + 1) * bucket)}`,
      `${bytes(number(lane.direct?.[at]))} direct`, `${bytes(number(lane.staged?.[at]))} staged`);
  }
  function leave() {
    at = null;
    mark.setAttribute("visibility", "hidden");
    hideTip();
  }
  for (const name of ["pointermove", "pointerdown"]) {
    picture.addEventListener(name, (event) => {
      const box = picture.getBoundingClientRect();
      tell(Math.floor(((event.clientX - box.left) / box.width) * many), event.clientX, event.clientY);
    });
  }
  picture.addEventListener("pointerleave", whenMouse(leave));
  picture.addEventListener("blur", leave);
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const box = picture.getBoundingClientRect();
    const next = Math.max(0, Math.min(many - 1, at === null ? 0 : at + step));
    tell(next, box.left + ((next + 0.5) / many) * box.width, box.top + box.height / 2);
  });
  return picture;
}

function ticks() {
  const power = 10 ** Math.floor(Math.log10(span / 6));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= span / 6);
  const axis = el("div", { class: "ticks", "aria-hidden": "true" });
  for (let at = Math.ceil(begin / step) * step - begin; at <= span * 0.97; at += step) {
    const tick = el("span", {}, clock(at));
    tick.style.left = `${(100 * at) / span}%`;
    axis.append(tick);
  }
  return axis;
}

function timeLine() {
  const all = { direct: [], staged: [] };
  for (const lane of lanes) {
    for (const name of ["direct", "staged"]) list(lane[name]).forEach((value, index) => { all[name][index] = number(all[name][index]) + number(value); });
  }
  const sums = new Map([all, ...lanes].map((lane) => [lane, {
    staged: sum(lane.staged), bytes: sum(lane.direct) + sum(lane.staged), avoidable: number(pairAt.get(place(lane))?.avoidable),
  }]));
  const busy = lanes.filter((lane) => sums.get(lane).bytes > 0).sort((a, b) => worstFirst(sums.get(a), sums.get(b)));
  if (busy.length === 0) return null;
  const highest = most(busy.map(peak));
  const row = (lane, name, top, style) => {
    const { bytes: all, staged: part } = sums.get(lane);
    return el("div", { class: `lane ${style}` }, el("span", {}, name), strip(lane, top, name), el("span", { class: "quiet" },
      all > part && `${bytes(all - part)} direct`, all > part && part > 0 && el("br", {}), part > 0 && `${bytes(part)} staged`));
  };
  const rest = el("div", { class: "lanes" });
  let shown = 0;
  const show = (n) => {
    rest.append(...busy.slice(shown, shown + n).map((lane) => row(lane, way(lane), highest, "")));
    shown = Math.min(busy.length, shown + n);
    more.hidden = shown === busy.length;
    more.textContent = `Show ${count(Math.min(64, busy.length - shown))} more of ${several(busy.length, "pair")}`;
  };
  const more = button("pill more", "", () => show(64));
  show(8);
  return [
    head("Timeline", `Bytes per ${duration(bucket)}: direct above the line, staged below it.${busy.length > 1 ? " The pairs have one scale, their sum another." : ""}`),
    el("div", { class: "lanes" }, busy.length > 1 && row(all, "All pairs", peak(all), "whole"), rest,
      el("div", { class: "lane scale" }, el("span", {}), ticks(), el("span", {}))),
    more,
  ];
}

// ---- The other sections

function unfinishedCalls() {
  const left = (row) => minus(fileAt.get(row.file)?.ended, row.started);
  return [
    head(`${several(unfinished.length, "call")} never returned`, "Not finished when the trace ended."),
    table("Calls that never returned", [
      codes("Function", (row) => row.function),
      short("Pair", way),
      figure("Bytes", (row) => row.bytes, bytes),
      text("Way", wayOf),
      short("In", (row) => fileName(row.file)),
      figure("Thread", (row) => row.thread, String),
      figure("Begun at", (row) => row.started, since),
      figure("Before the end", left, duration),
      text("Place", placeName, (row) => code(placeName(row)), "text"),
    ], unfinished, { sort: 7 }),
  ];
}

function findingList() {
  const grave = ["hazard", "error", "performance", "note"];
  const levels = { hazard: "bad", error: "warn", performance: "warn" };
  const rank = (finding) => grave.indexOf(finding.severity) + 1 || 9;
  const sorted = [...findings].sort((a, b) => rank(a) - rank(b) || number(b.count) - number(a.count));
  return [
    head("Findings", "What is wrong with calls, the most severe first."),
    el("div", { class: "findings" }, sorted.map((finding, index) => el("details", { open: index === 0 },
      el("summary", {}, el("span", { class: `tag ${levels[finding.severity] || "note"}` }, finding.severity), code(finding.rule),
        el("span", { class: "quiet small" }, `${count(finding.count)} ×`)),
      el("div", { class: "body" }, el("p", {}, finding.text), sites(finding.sites),
        el("p", { class: "quiet small" }, files.length > 1 && `In ${some(list(finding.files).map(fileName), 12)}. `,
          "Details: ", code(`p2pshim explain ${finding.rule}`)))))),
  ];
}

const errorTable = () => [
  head("Errors", "Calls that failed, and where they were made."),
  table("Errors", [
    codes("Function", (row) => row.function),
    text("Answer", (row) => row.name || String(row.code), (row) => [code(row.name), ` (${row.code})`]),
    short("Layer", (row) => row.layer),
    figure("Count", (row) => row.count),
    figure("Places", (row) => list(row.sites).length),
  ], errors, { sort: 3, detail: (row) => sites(row.sites) }),
];

const pairTable = () => [
  head("All pairs", "GB/s on the devices, where measured; host times are of calls."),
  table("Pairs", [
    short("Pair", way),
    text("Path", (row) => row.kind, (row) => key(row.kind)),
    figure("Bytes", (row) => row.bytes, bytes),
    figure("Staged", (row) => row.staged, bytes),
    figure("Calls", (row) => row.calls),
    figure("GB/s", (row) => row.rate, (value) => known(value, digits)),
    figure("Errors", (row) => row.errors, alarming),
    short("Link", (row) => row.link),
    ...hostTimes,
  ], pairs, { sort: 3, detail: (row) => el("div", { class: "card" }, card(row)) }),
];

const lines = pairs.flatMap(({ src, dst, sites: all }) => list(all).flatMap(({ site, calls: of, lines: found }) =>
  list(found).map((line) => ({ ...line, src, dst, site, of }))));
const lineTable = () => [
  head("Lines of Python that copy", "Looked at for the first copies of a place, and fewer and fewer of the rest."),
  table("Lines of Python", [
    text("Line", lineName, (row) => el("span", { title: row.file }, code(lineName(row))), "text"),
    short("Pair", way),
    figure("Looked at", (row) => row.calls),
    figure("Of", (row) => row.of),
    text("Place", (row) => row.site, (row) => code(row.site), "text"),
  ], lines, { sort: 2 }),
];

const callers = pairs.flatMap(({ src, dst, sites: all }) => list(all).flatMap(({ site, calls: of, callers: found }) =>
  list(found).map((caller) => ({ ...caller, src, dst, site, of }))));
const callerTable = () => [
  head("Call sites that copy", "What called the CUDA runtime. Looked at for the first copies of a place, and fewer and fewer of the rest."),
  table("Call sites", [
    text("Call site", (row) => row.caller, (row) => code(row.caller), "text"),
    short("Pair", way),
    figure("Looked at", (row) => row.calls),
    figure("Of", (row) => row.of),
    text("Place", (row) => row.site, (row) => code(row.site), "text"),
  ], callers, { sort: 2 }),
];

const functionTable = () => [
  head("Functions", "Runtime calls contain driver calls: do not add them up."),
  table("Functions", [
    codes("Function", (row) => row.name),
    short("Layer", (row) => row.layer),
    figure("Calls", (row) => row.calls),
    figure("Errors", (row) => row.errors, alarming),
    ...hostTimes,
  ], functions, { sort: 7 }),
];

const decisionTable = () => [
  head("Decisions", "What p2pshim did about a pair, and why."),
  table("Decisions", [
    figure("At", (row) => row.time, since),
    short("Pair", way),
    text("Decision", (row) => row.text, null, "text"),
    short("In", (row) => fileName(row.file)),
  ], decisions, { sort: 0, down: false }),
];

function fileDetail(file) {
  const named = (object) => Object.entries(object || {}).map(([name, value]) => `${name}=${value}`).join(", ");
  const [executable, ...command] = list(file.program);
  return el("dl", { class: "facts small" }, facts([
    ["File", code(file.path)],
    ["Executable", code(executable)],
    ["Command", code(command.join(" "))],
    ["Begun", moment(file.started)],
    ["Room", `${bytes(file.limit)}, ${several(number(file.dropped), "call")} dropped`],
    ["GPUs", list(file.gpus).map(gpuName).join(", ")],
    ["Threads", list(file.threads).map(({ id, name, calls }) => `${name || "unnamed"} (${id}): ${several(calls, "call")}`).join("; ")],
    ["Versions", named(file.versions)],
    ["Variables", named(file.variables)],
  ]));
}

function fileTable() {
  const faulty = (file) => list(file.problems).length > 0 || file.dropped > 0;
  const troubled = files.filter(faulty).length;
  return [
    head("Files", `${several(files.length, "file")}, ${troubled === 0 ? "none" : count(troubled)} with problems.`),
    table("Files", [
      short("Rank", (row) => row.rank, (row) => row.rank ?? "none"),
      short("Host", (row) => row.host),
      figure("Process", (row) => row.process, String),
      figure("Calls", (row) => row.calls),
      figure("Dropped", (row) => row.dropped, alarming),
      figure("Threads", (row) => list(row.threads).length),
      figure("Lasted", (row) => minus(row.ended, row.started), duration),
      text("Problems", (row) => list(row.problems).length + faulty(row),
        (row) => (list(row.problems).length > 0 ? bad(row.problems.join("; ")) : quiet("none")), "text"),
    ], files, { sort: troubled > 0 ? 7 : 0, down: troubled > 0, detail: fileDetail }),
  ];
}

/** Versions and variables with the number of files that have them, and the GPUs. */
function environment() {
  const rows = new Map();
  for (const file of files) {
    for (const [what, values] of [["version", file.versions], ["variable", file.variables]]) {
      for (const [name, value] of Object.entries(values || {})) {
        const id = JSON.stringify([what, name, value]);
        if (!rows.has(id)) rows.set(id, { what, name, value, files: 0 });
        rows.get(id).files += 1;
      }
    }
  }
  return [
    head("Environment"),
    table("Versions and variables", [
      codes("Name", (row) => row.name),
      text("Value", (row) => row.value, (row) => code(row.value)),
      short("What", (row) => row.what),
      figure("Files", (row) => row.files, (n) => `${count(n)} of ${count(files.length)}`),
    ], [...rows.values()], { sort: 0, down: false }),
    el("div", { class: "more" }, table("GPUs", [
      short("GPU", (row) => row.label),
      short("Name", (row) => row.name),
      short("Host", (row) => row.host),
      codes("PCI", (row) => row.pci),
      codes("UUID", (row) => row.uuid),
      ...(linkOf.size > 0 ? [["sent", "copied_from"], ["received", "copied_to"]].flatMap(([way, copied]) => [
        figure(`NVLink ${way}`, (row) => linkOf.get(row.index)?.[`${way}_bytes`], bytes),
        figure(`${way} by copies`, (row) => linkOf.get(row.index)?.[`${copied}_bytes`], bytes)]) : []),
    ], gpus)),
  ];
}

// ---- The page

function theme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let own = null;
  const toggle = document.getElementById("theme");
  const apply = () => {
    const dark = own ?? system.matches;
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    toggle.setAttribute("aria-pressed", String(dark));
  };
  toggle.addEventListener("click", () => {
    own = !(own ?? system.matches);
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}

function title() {
  const programs = [...new Set(files.map((file) => list(file.program)[0]).filter(Boolean).map(baseName))];
  const hosts = [...new Set(files.map((file) => file.host).filter(Boolean))];
  const parts = [some(programs, 2), files.length > 1 && several(files.length, "file"), hosts.length > 1 ? several(hosts.length, "host") : hosts[0],
    gpus.length > 0 && several(gpus.length, "GPU"), Number.isFinite(started) && moment(started), length && duration(length)];
  fill(document.getElementById("run"), {}, [parts.filter(Boolean).join(" · ")]);
  if (programs.length > 0) document.title = `${plain(programs[0])}: p2pshim report`;
}

theme();
title();
if (data.version !== 1) main.append(el("p", { class: "bad" }, "The data does not match the version of this page."));
const sections = [
  ["pairs", "Pairs of GPUs", pairs, heatMap],
  ["timeline", "Timeline", lanes, timeLine],
  ["findings", "Findings", findings, findingList, true],
  ["errors", "Errors", errors, errorTable, true],
  ["all-pairs", "All pairs", pairs, pairTable, true],
  ["lines", "Lines of Python", lines, lineTable, true],
  ["callers", "Call sites", callers, callerTable, true],
  ["functions", "Functions", functions, functionTable],
  ["decisions", "Decisions", decisions, decisionTable, true],
  ["files", "Files", files, fileTable, true],
  ["environment", "Environment", files, environment],
].map(([id, name, items, make, counted]) => ({ id, name, number: counted && count(items.length), content: items.length > 0 && make() }))
  .filter(({ content }) => content);
fill(main, {}, [
  verdict(),
  unfinished.length > 0 && el("section", { id: "unfinished", class: unfinished.some((call) => !(call.age_ns < SOON)) ? "urgent" : "" }, unfinishedCalls()),
  el("section", { class: "first", "aria-label": "Key figures" }, figures()),
  el("nav", { class: "where", "aria-label": "Sections" }, sections.map(({ id, name, number }) =>
    el("a", { href: `#${id}` }, name, number && [" ", el("b", {}, number)]))),
  sections.map(({ id, content }) => el("section", { id }, content)),
]);

// On paper nothing can be opened.
addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details")) one.open = true; });
