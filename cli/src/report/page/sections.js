// ---- The other sections

function unfinishedCalls(calls, what, note = "Not finished when the trace ended.") {
  const left = (row) => minus(fileAt.get(row.file)?.ended, row.started);
  return calls.length > 0 && [
    head(`${several(calls.length, "call")} ${what}`, note),
    table(`Calls: ${what}`, [
      codes("Function", (row) => row.function),
      short("Pair", way),
      figure("Bytes", (row) => row.bytes, bytes),
      text("Way", wayOf),
      short("In", (row) => fileName(row.file)),
      figure("Thread", (row) => row.thread, String),
      figure("Begun at", (row) => row.started, since),
      figure("Before the end", left, duration),
      text("Place", placeName, (row) => code(placeName(row)), "text"),
    ], calls, { sort: 7 }),
  ];
}

function findingList() {
  const grave = ["hazard", "error", "performance", "note"];
  const levels = { hazard: "bad", error: "warn", performance: "warn" };
  const rank = (finding) => grave.indexOf(finding.severity) + 1 || 9;
  const sorted = [...findings].sort((a, b) => rank(a) - rank(b) || number(b.count) - number(a.count));
  return [
    head("Findings", "Faults of calls, the most severe first."),
    el("div", { class: "findings" }, sorted.map((finding, index) => el("details", { open: index === 0 },
      el("summary", {}, el("span", { class: `tag ${levels[finding.severity] || "note"}` }, finding.severity), code(finding.rule),
        el("span", { class: "quiet small" }, `${finding.severity === "performance" || finding.rule.startsWith("P2P-order-") ? "≥ " : ""}${count(finding.count)} ×`)),
      el("div", { class: "body" }, el("p", {}, prose(finding.text)), sites(finding.sites),
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
  head("All pairs", "Rates are those on the devices; ~ if some of the copies were timed only. Host times are of calls."),
  table("Pairs", [
    short("Pair", way),
    text("Path", (row) => row.kind, (row) => key(row.kind)),
    figure("Bytes", (row) => row.bytes, bytes),
    figure("Staged", (row) => row.staged, bytes),
    figure("Calls", (row) => row.calls),
    { ...figure("Rate", (row) => row.rate), cell: (row) => measured(row.measured) },
    { ...figure("Timed", (row) => row.measured.device_calls), cell: ({ measured: { device_calls: some, calls } }) => `${count(some)} of ${count(calls)}` },
    figure("Errors", (row) => row.errors, alarming),
    short("Link", (row) => row.link),
    ...hostTimes,
  ], [...pairs].sort(worstFirst), { detail: (row) => el("div", { class: "card" }, card(row)) }),
];

const acrossTable = () => [
  head("Between processes", "Who copied from or to whose memory. These copies are among those of the pairs too."),
  table("Copies between processes", [
    short("Process", (row) => fileName(row.file)),
    text("What it did", didOf),
    short("Pair", way),
    figure("Bytes", (row) => row.bytes, bytes),
    figure("Copies", (row) => row.calls),
    short("Opened by", (row) => list(row.how).join(", ")),
  ], acrossProcesses, { sort: 3 }),
];

const unsharedTable = () => [
  head("Sharing memory between processes", "Calls by which processes share memory, and that failed or need care. Libraries try some ways and take another."),
  table("Sharing memory between processes", [
    text("Why", (row) => row.why, (row) => prose(row.why), "text"),
    text("Remedy", (row) => row.remedy, (row) => prose(row.remedy), "text"),
    codes("Function", (row) => row.function),
    text("Answer", (row) => row.name || String(row.code), (row) => [code(row.name), ` (${row.code})`]),
    figure("Count", (row) => row.count),
    short("In", (row) => some(list(row.files).map(fileName), 4)),
  ], unshared, { sort: 4, detail: (row) => sites(row.sites) }),
];

const lines = pairs.flatMap(({ src, dst, sites: all }) => list(all).flatMap(({ site, calls: of, lines: found }) =>
  list(found).map((line) => ({ ...line, src, dst, site, of }))));
const lineTable = () => [
  head("Lines of Python that copy", "Lines are looked at for the first copies of a place, and fewer and fewer of the rest."),
  table("Lines of Python", [
    text("Line", lineName, (row) => el("span", { title: row.file }, code(lineName(row))), "text"),
    short("Pair", way),
    figure("Looked at", (row) => row.calls),
    figure("Of", (row) => row.of),
    figure("Their bytes", (row) => row.bytes, bytes),
    figure("Their calls", (row) => row.host_ns, duration),
    text("Place", (row) => row.site, (row) => code(row.site), "text"),
  ], lines, { sort: 2 }),
];

const callers = pairs.flatMap(({ src, dst, sites: all }) => list(all).flatMap(({ site, calls: of, callers: found }) =>
  list(found).map((caller) => ({ ...caller, src, dst, site, of }))));
const callerTable = () => [
  head("Call sites that copy", "Callers of the CUDA runtime. They are looked at for the first copies of a place, and fewer and fewer of the rest."),
  table("Call sites", [
    text("Call site", (row) => chain(row.caller), (row) => code(chain(row.caller)), "text"),
    short("Pair", way),
    figure("Looked at", (row) => row.calls),
    figure("Of", (row) => row.of),
    text("Place", (row) => row.site, (row) => code(row.site), "text"),
  ], callers, { sort: 2 }),
];

const functionTable = () => [
  head("Functions", "Runtime calls contain driver calls: do not add them up. Totals are of the calls that were timed."),
  table("Functions", [
    codes("Function", (row) => row.name),
    short("Layer", (row) => row.layer),
    figure("Calls", (row) => row.calls),
    figure("Errors", (row) => row.errors, alarming),
    ...hostTimes,
  ], functions, { sort: 7 }),
];

/** Decisions with equal words about a pair, once: when it was first decided, how often, and by whom. */
const decided = [...decisions.reduce((rows, row) => {
  const id = JSON.stringify([row.src, row.dst, row.text]);
  const known = rows.get(id) ?? { ...row, times: 0, by: new Set() };
  known.times += 1;
  known.time = Math.min(known.time ?? row.time, row.time);
  known.by.add(row.file);
  return rows.set(id, known);
}, new Map()).values()];
const decisionTable = () => [
  head("Decisions", "Decisions of p2pshim about pairs, with their reasons."),
  table("Decisions", [
    figure("At", (row) => row.time, since),
    short("Pair", way),
    text("Decision", (row) => row.text, (row) => (row.verified && row.verified !== "right" ? bad(prose(row.text)) : prose(row.text)), "text"),
    decided.length < decisions.length && figure("Times", (row) => row.times),
    short("In", (row) => some([...row.by].map(fileName), 4)),
  ].filter(Boolean), decided, { sort: 0, down: false }),
];

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
  ["between-processes", "Between processes", acrossProcesses, acrossTable, true],
  ["unshared", "Sharing memory", unshared, unsharedTable, true],
  ["lines", "Lines of Python", lines, lineTable, true],
  ["callers", "Call sites", callers, callerTable, true],
  ["functions", "Functions", functions, functionTable],
  ["decisions", "Decisions", decided, decisionTable, true],
  ["processes", "Processes", files, processTable, true],
  ["environment", "Environment", files, environment],
].map(([id, name, items, make, counted]) => ({ id, name, number: counted && count(items.length), content: items.length > 0 && make() }))
  .filter(({ content }) => content);
fill(main, {}, [
  verdict(),
  unfinished.length > 0 && el("section", { id: "unfinished", class: never.length > 0 ? "urgent" : "" },
    unfinishedCalls(never, "never returned"), unfinishedCalls(cutOff, "cut off", "Its process ended, or became another program, in it; after how long is not known."), unfinishedCalls(underWay, "under way")),
  el("section", { class: "first", "aria-label": "Key figures" }, figures()),
  el("nav", { class: "where", "aria-label": "Sections" }, sections.map(({ id, name, number }) =>
    el("a", { href: `#${id}` }, name, number && [" ", el("b", {}, number)]))),
  sections.map(({ id, content }) => el("section", { id }, content)),
]);

// On paper nothing can be opened.
addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details")) one.open = true; });
