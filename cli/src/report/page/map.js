// ---- The heat map

/** A rate that some pair has, or none. */
const rateOf = (value) => (pairs.find((pair) => pair.rate === value)?.rate_text ?? "0 GB/s").replace(/~| ±[\d.]+/g, "");
const VIEWS = {
  path: ["Path"],
  bytes: ["Bytes", (pair) => pair.bytes, bytes],
  rate: ["GB/s", (pair) => pair.rate, rateOf, (pair) => measured(pair.measured).replace(/( ±[\d.]+)? GB\/s$/, "")],
};
const key = (kind) => el("span", { class: `key ${kind}`, title: PATHS[kind][1], role: "img", "aria-label": PATHS[kind][1] }, PATHS[kind][0]);

/** A size of copies, exactly. */
const exact = (size) => {
  const [unit, name] = [[1 << 30, "GiB"], [1 << 20, "MiB"], [1 << 10, "KiB"]].find(([unit]) => size >= unit && size % unit === 0) || [1, "B"];
  return `${count(size / unit)} ${name}`;
};
function sizeOf({ from, to }) {
  if (!Number.isFinite(to)) return `${exact(from)} and more`;
  if (to - from === 1) return exact(from);
  const [low, high] = [exact(from).split(" "), exact(to)];
  return `${high.endsWith(` ${low[1]}`) ? low[0] : low.join(" ")} to ${high}`;
}

/** A pair's copies by their size: how many bytes on which path, and how fast. */
function sizeTable(sizes) {
  const rows = [...sizes].sort((a, b) => a.from - b.from || number(b.bytes) - number(a.bytes));
  const highest = most(rows.map((row) => row.bytes));
  const share = (row, kind) => {
    const bar = el("i", { class: kind });
    bar.style.width = `${(100 * number(row.bytes)) / (highest || 1)}%`;
    return el("span", { class: "share" }, bar);
  };
  const line = (row) => {
    const kind = kindOf(row);
    return el("tr", {}, el("th", { scope: "row" }, sizeOf(row)), el("td", {}, key(kind)), el("td", {}, share(row, kind)),
      [bytes(row.bytes), count(row.calls), measured(row)].map((value) => el("td", { class: "right" }, value)));
  };
  const heads = ["Size of a copy", "", "", "Bytes", "Copies", "Rate"];
  return scroller({}, el("table", { class: "sizes" }, el("caption", { class: "hidden" }, "Copies by their size"),
    el("thead", {}, el("tr", {}, heads.map((name, index) => el("th", { scope: "col", class: index > 2 && "right" }, name)))), el("tbody", {}, rows.map(line))));
}

/** The fault of a pair: what verification saw, and what follows from it. */
function fault(pair) {
  const said = failureOf(pair);
  const other = said && place(said) !== place(pair);
  const isUsed = ["in use", "disregarded"].includes(said?.verified);
  const follows = said?.verified === "in use"
    ? "The program uses peer access here all the same: its data may be wrong. Run it with `P2PSHIM_ACCESS=off`, or with `P2PSHIM_DENY` for the pair."
    : !said && pair.remedy;
  return el("div", { class: "fault" }, el("p", { class: "tag bad" }, isUsed ? "Data may be wrong" : "Blocked"),
    el("p", {}, other && `${way(said)}: `, said && sentence(said.text)), follows && el("p", {}, prose(follows)));
}

/** All about one pair. */
function card(pair) {
  const lane = laneAt.get(place(pair));
  const hostWords = ({ p50, p99, max }) => `p50 ${p50 ?? "–"}, p99 ${p99 ?? "–"}, max ${max ?? "–"}`;
  const name = (path) => (["unknown", "blocked", "forced"].includes(kindOf(path)) ? path.path : PATHS[kindOf(path)][1]);
  return [
    el("h3", {}, way(pair)),
    pair.blocked && fault(pair),
    el("ul", {}, pair.paths.map((path) => el("li", {}, key(kindOf(path)), el("span", {},
      `${bytes(path.bytes)} ${name(path)}${path.why ? `: ${path.why}` : ""}${path.between_processes && kindOf(path) !== "across" ? ", between processes" : ""}`,
      quiet(` · ${several(path.calls, "copy", "copies")}${Number.isFinite(path.gb_per_s) ? ` · ${measured(path)} (${timed(path)})` : ""}${
        path.host_text ? ` · host ${hostWords(path.host_text)}` : ""}`))))),
    acrossProcesses.filter((row) => place(row) === place(pair)).map((row) =>
      el("p", { class: "small" }, `${fileName(row.file)} ${didOf(row)}`, quiet(` · ${bytes(row.bytes)}`))),
    !pair.blocked && pair.kind !== "direct" && pair.remedy && el("p", { class: "small" }, prose(pair.remedy)),
    el("dl", {}, facts([
      ["Bytes", `${bytes(pair.bytes)} in ${several(pair.calls, "call")}`],
      ["Link", pair.link || "not known"],
      ["Peer access", { true: "possible", false: "not possible" }[pair.access] || "not known"],
      ["Errors", alarming(pair.errors)],
      !pair.paths.some((path) => path.host_text) && ["Host time", hostWords(pair.host_text || {})],
    ].filter(Boolean))),
    list(pair.sizes).length > 0 && sizeTable(pair.sizes),
    lane && strip(lane, peak(lane), way(pair), marks.filter((mark) => place(mark) === place(pair))).picture,
  ];
}

/** The GPUs that a map has: those of one host, if no pair joins hosts; the busiest, if there are too many. */
function maps() {
  const hostOf = (index) => gpuAt.get(index)?.host ?? "";
  const all = [...new Set([...gpus.map((gpu) => gpu.index), ...pairs.flatMap(({ src, dst }) => [src, dst])])].filter(Number.isInteger);
  const hosts = new Map();
  for (const index of all) {
    if (!hosts.has(hostOf(index))) hosts.set(hostOf(index), { gpus: [], bytes: 0, staged: 0, avoidable: 0, blocked: false });
    hosts.get(hostOf(index)).gpus.push(index);
  }
  if (hosts.size > 1 && between.every((pair) => hostOf(pair.src) === hostOf(pair.dst))) {
    for (const pair of between) {
      const host = hosts.get(hostOf(pair.src));
      host.bytes += number(pair.bytes);
      host.staged += pair.staged;
      host.avoidable += pair.avoidable;
      host.blocked ||= pair.blocked;
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
  const frame = el("div", { class: "map" }, el("div", {}, scroller({}, grid), legend), about);
  const cells = () => rows.flat();

  function build() {
    const many = map.gpus.length;
    size = many <= 6 ? "large" : many <= 12 ? "large many" : many <= 20 ? "medium" : "small";
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
    const [, value, words, brief = (pair) => words(value(pair))] = VIEWS[view];
    const shown = cells().map((cell) => cell.about.pair).filter(Boolean);
    const scale = value && scaleOf(shown.filter((pair) => pair.src !== pair.dst).map(value));
    grid.className = `heat ${size} ${value ? "by-value" : "by-path"}`;
    for (const cell of cells()) {
      const { src, dst, pair } = cell.about;
      const styles = [src === dst && "self", pair ? `used ${pair.kind}` : "none", pair?.errors > 0 && "errors", cell === chosen && "chosen"];
      const letter = pair && PATHS[pair.kind][0];
      let content = src === dst ? ["·"] : [];
      if (pair && !value) {
        content = [el("b", {}, letter), size.startsWith("large") && el("small", {}, bytes(pair.bytes))];
      } else if (pair) {
        const part = Math.min(1, scale.share(value(pair)));
        cell.style.setProperty("--v", `${Math.round(part * 100)}%`);
        styles.push(part > 0.5 && "half", part > 0.75 && "strong");
        content = [size !== "small" && brief(pair), size.startsWith("large") && el("small", {}, letter)];
      }
      cell.replaceChildren(...content.filter(Boolean));
      // A letter alone tells nothing when it is read out.
      cell.setAttribute("aria-label", [nameOf(cell.about), ...aboutOf(cell.about)].filter(Boolean).join(", "));
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

  const nameOf = (about) => (about.src === about.dst ? `Within ${gpuName(about.src)}` : way(about));
  const aboutOf = ({ pair }) => (pair ? [
    `${bytes(pair.bytes)} in ${several(pair.calls, "call")}${pair.rate === null ? "" : `, ${measured(pair.measured)}`}`,
    `${PATHS[pair.kind][1]}${pair.why ? `: ${pair.why}` : ""}`,
    pair.errors > 0 && several(pair.errors, "error"),
  ] : ["no copies"]);
  const tell = (cell, x, y) => showTip(x, y, grid, nameOf(cell.about), ...aboutOf(cell.about));

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

  const modes = choiceOf("view", "View", Object.values(VIEWS).map(([label]) => label), (index) => {
    view = Object.keys(VIEWS)[index];
    paint();
  });
  const hosts = choices.length > 1 && el("select", { class: "pill", "aria-label": "Host" },
    choices.map(({ name }, index) => el("option", { value: index }, name)));
  if (hosts) hosts.addEventListener("change", () => { map = choices[hosts.value]; build(); });
  if (map.gpus.length > 0) build();
  return [head("Pairs of GPUs", "Rows are sources, columns destinations.", hosts, modes), frame];
}
