// Shows the report that lies in this page as JSON, as `p2pshim report --json` prints it.
//
// Whatever comes from a trace goes into the page as text, never as markup. Nothing is loaded.

const list = (value) => (Array.isArray(value) ? value : []);
const given = (value) => value !== null && value !== undefined && value !== false && value !== "";
const number = (value) => (Number.isFinite(value) ? value : 0);
const sum = (items, value = (item) => item) => list(items).reduce((total, item) => total + number(value(item)), 0);
const most = (items) => list(items).reduce((a, b) => Math.max(a, number(b)), 0);

// ---- Words for values

const BYTES = [[1e18, "EB"], [1e15, "PB"], [1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]];
const TIMES = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];

/** Three digits, and no zeros at the end of a fraction. */
const digits = (value) => (value >= 100 ? Math.round(value) : +value.toPrecision(3)).toLocaleString("en-GB", { maximumFractionDigits: 20 });

function scaled(value, steps) {
  // 999.7 MB is as good as 1 GB.
  const [size, unit] = steps.find(([step]) => value >= step * 0.9995) || steps[steps.length - 1];
  return `${digits(value / size)} ${unit}`;
}

const known = (value, words) => (Number.isFinite(value) ? words(value) : "–");
const count = (value) => known(value, (n) => n.toLocaleString("en-GB"));
/** As the text has them, so that sums made here look like those of the verdict: a quarter is rounded down, to the even digit. */
const bytes = (value) => known(value, (n) => {
  const [size, unit] = BYTES.find(([step]) => n >= step * 0.99995) || BYTES[BYTES.length - 1];
  const scaled = n / size;
  return unit === "B" ? `${n} B` : `${(scaled % 1 === 0.25 ? scaled - 0.01 : scaled).toFixed(1)} ${unit}`;
});
/** The rate of copies, as the text has it; ~ if it rests on some of them only. */
const measured = (copies) => copies.rate_text ?? "–";
const timed = ({ device_calls: some, calls }) => (some < calls ? `${count(some)} of ${count(calls)} timed` : "all timed");
const several = (n, one, more = `${one}s`) => `${count(n)} ${n === 1 ? one : more}`;
const some = (items, n) => items.slice(0, n).join(", ") + (items.length > n ? ", …" : "");

function percent(part, whole) {
  const share = whole > 0 ? (100 * part) / whole : 0;
  if (share > 0 && share < 1) return "under 1 %";
  return share > 99 && share < 100 ? "over 99 %" : `${Math.round(share)} %`;
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

/** A text, with what stands between backticks as code. */
const prose = (text) => String(text ?? "").split(/`([^`\n]+)`/).map((part, index) => (index % 2 ? el("code", {}, part) : part));

/** A sentence of it. */
const sentence = (text) => prose(String(text).replace(/^[a-z]/, (letter) => letter.toUpperCase()).replace(/[\w)]$/, "$&."));

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

/** One of some words; `act` gets its number. */
const choiceOf = (name, title, labels, act) => el("fieldset", { class: "choice" }, el("legend", { class: "hidden" }, title),
  labels.map((label, index) => {
    const input = el("input", { type: "radio", name, checked: index === 0 });
    input.addEventListener("change", () => act(index));
    return el("label", {}, input, el("span", {}, label));
  }));

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
/** The gaps in recording and reading, and whether bytes and calls are lower bounds for that. */
const gaps = list(data.gaps);
const lowerBounds = data.lower_bounds === true;
/** Calls that never returned; those in which a process ended, nobody knows after how long; and those that have only just begun. */
const [cutOff, underWay] = ["cut-off", "under-way"].map((it) => unfinished.filter(({ progress }) => progress === it));
const never = unfinished.filter((call) => !cutOff.includes(call) && !underWay.includes(call));
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
const way = ({ src, dst }) => (Number.isInteger(src) || Number.isInteger(dst) ? `${gpuName(src)} > ${gpuName(dst)}` : "–");
const fileName = (index) => {
  const file = fileAt.get(index) || {};
  return given(file.rank) ? `rank ${file.rank}` : file.process ? `process ${file.process}` : baseName(file.path ?? "–");
};
/** Copies from or to memory of another process, and the words for what their process did. */
const acrossProcesses = list(data.between_processes);
const unshared = list(data.unshared);
const ownerName = (index) => (Number.isInteger(index) ? fileName(index) : "another process");
const didOf = ({ does, src_file: from, dst_file: to }) => (does === "pull" ? `pulled from memory of ${ownerName(from)}`
  : does === "both" ? `copied from memory of ${ownerName(from)} to that of ${ownerName(to)}` : `pushed to memory of ${ownerName(to)}`);
const baseName = (path) => String(path).split("/").pop();
// Damaged files may be from any time.
const sound = files.filter((file) => list(file.problems).length === 0);
const times = (what) => (sound.length > 0 ? sound : files).map((file) => file[what]).filter(Number.isFinite);
const started = Math.min(...times("started"));
const ended = Math.max(...times("ended"));
/** How long it took, without the time between runs. */
const length = (list(data.times).length > 1 ? sum(data.times, ({ from, to }) => to - from) : Math.max(0, ended - started)) || null;
const minus = (a, b) => (Number.isFinite(a) && Number.isFinite(b) ? a - b : null);
const since = (ns) => known(minus(ns, started), (after) => `${(after / 1e9).toFixed(3)} s`);

// By its letter a path is known without its colour.
const PATHS = {
  blocked: ["!", "peer access loses data or hangs"],
  direct: ["D", "direct"],
  staged: ["S", "staged"],
  forced: ["N", "staged: no better path, on purpose, or not verified"],
  mixed: ["M", "partly direct, partly staged"],
  mapped: ["P", "mapped on first use (HIP)"],
  hand: ["V", "by the program's own copies through the host"],
  same: ["L", "within one GPU"],
  across: ["B", "between processes on one GPU"],
  host: ["H", "from or to the host"],
  unknown: ["?", "path not known"],
};
const KINDS = { direct: "direct", mapped: "mapped", "start-up": "staged", avoidable: "staged", staged: "forced", blocked: "blocked", "same-device": "same", host: "host", "by-hand": "hand" };
const kindOf = (row) => (row?.class === "same-device" && row.between_processes === true ? "across" : Object.hasOwn(KINDS, row?.class ?? "") ? KINDS[row.class] : "unknown");

const FAILED = new Set(["avoided", "in use", "disregarded"]);
/** The latest decision about a pair whose verification failed. */
const failures = new Map(decisions.filter(({ verified }) => FAILED.has(verified)).map((decision) => [place(decision), decision]));
const failureOf = ({ src, dst }) => failures.get(`${src} ${dst}`) || failures.get(`${dst} ${src}`);

// The rest of the page asks these facts of a pair.
for (const pair of pairs) {
  pair.paths = list(pair.paths);
  const of = (...kinds) => pair.paths.filter((path) => kinds.includes(kindOf(path)));
  const ways = of("staged", "forced", "blocked").sort((a, b) => number(b.bytes) - number(a.bytes));
  pair.direct = sum(of("direct"), (path) => path.bytes);
  pair.staged = sum(ways, (path) => path.bytes);
  pair.hand = sum(of("hand"), (path) => path.bytes);
  pair.avoidable = pair.access === true ? sum(ways.filter((path) => path.class === "avoidable"), (path) => path.bytes) : 0;
  pair.why = [...new Set(ways.map((path) => path.why).filter(Boolean))].join("; ");
  pair.remedy = ways.find((path) => path.remedy)?.remedy;
  // Less than a twentieth does not make a pair mixed: the first copies of a pair are staged by design.
  const few = 0.05 * (pair.direct + pair.staged);
  const largest = [...pair.paths].sort((a, b) => number(b.bytes) - number(a.bytes) || number(b.calls) - number(a.calls))[0];
  pair.kind = Math.min(pair.direct, pair.staged) > few ? "mixed" : kindOf(largest);
  if (pair.kind === "staged" && pair.access === false) pair.kind = "forced";
  pair.blocked = pair.is_blocked === true;
  if (pair.blocked) pair.kind = "blocked";
  pair.rate = Number.isFinite(pair.gb_per_s) ? pair.gb_per_s : null;
  pair.measured = { rate_text: pair.rate_text, device_calls: sum(pair.paths, (path) => path.device_calls), calls: sum(pair.paths, (path) => path.calls) };
}
/** Memory of other processes of which it is not known on which GPU it lies is no GPU. */
const isGpu = (index) => Number.isInteger(index) && gpuAt.get(index)?.is_another_process !== true;
const between = pairs.filter(({ src, dst }) => isGpu(src) && isGpu(dst) && src !== dst);
const used = between.filter((pair) => pair.calls > 0);
const [total, direct, staged, byHand] = ["bytes", "direct", "staged", "hand"].map((what) => sum(between, (pair) => pair[what]));
const worstFirst = (a, b) => Boolean(b.blocked) - Boolean(a.blocked) || b.avoidable - a.avoidable || b.staged - a.staged || number(b.bytes) - number(a.bytes);
const failed = sum(errors, (error) => error.count);
/** The time that the loss is a part of. A loss that is summed over processes or devices is no part of the run's time. */
const share = Number.isFinite(lost.seconds) && length >= lost.seconds * 1e9 ? length : null;
