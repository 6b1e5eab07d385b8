// ---- The timeline: bytes over time, by pair or by process, with what happened

const bucket = number(timeline.bucket_ns) || 1;
const peak = (lane) => Math.max(most(lane.direct), most(lane.staged));
const buckets = Math.max(1, most(lanes.map((lane) => Math.max(list(lane.direct).length, list(lane.staged).length))));
// From the beginning of the run, like all times of the page.
const begin = Math.max(0, minus(timeline.start, started));

const MARKS = {
  wrong: "lost data, hung or never returned",
  finding: "finding",
  decision: "decision",
  said: "mark of the program",
};

/** Events and their times: `at` is in buckets since the first. */
const marks = [
  ...decisions.map((row) => ({ ...row, kind: FAILED.has(row.verified) ? "wrong" : "decision", text: `${way(row)}: ${row.text}` })),
  ...findings.flatMap((finding) => list(finding.times).map(({ file, time }) => ({ file, time, kind: "finding", text: finding.rule }))),
  ...never.map((row) => ({ ...row, time: row.started, kind: "wrong", text: `${copied(row)} begins, and does not return` })),
  ...files.flatMap((file) => list(file.marks).map(({ time, text }) => ({ file: file.index, time, kind: "said", text }))),
].filter(({ time }) => Number.isFinite(time)).map((mark) => ({ ...mark, at: (mark.time - number(timeline.start)) / bucket }))
  // A mark far from all copies would leave them no room.
  .filter(({ at }) => at >= -buckets && at <= 2 * buckets).sort((a, b) => a.at - b.at);
/** All that there is to see, from and to, in buckets. */
const whole = [Math.floor(Math.min(0, marks[0]?.at ?? 0)), Math.ceil(Math.max(buckets, (marks[marks.length - 1]?.at ?? 0) + 0.01))];
const NARROWEST = Math.min(4, whole[1] - whole[0]);

/** A time on the axis, such that buckets differ. */
function clock(ns) {
  const [size, unit] = TIMES.find(([step]) => begin + whole[1] * bucket >= step) || TIMES[3];
  const value = ((begin + ns) / size).toFixed(Math.max(0, Math.ceil(Math.log10(size / bucket))));
  return `${+value} ${unit}`;
}
const fromTo = (from, to) => `${clock(from * bucket)} to ${clock(to * bucket)}`;

/** Bytes per bucket as an outline from the axis: upwards if `sign` is -1. */
function outline(values, highest, sign) {
  let [path, last] = ["M0 0", 0];
  list(values).forEach((value, index) => {
    // Small values must still be seen.
    const height = value > 0 ? Math.max(0.05, value / highest) : 0;
    if (height !== last) path += `H${index}V${(sign * height).toFixed(3)}`;
    last = height;
  });
  return `${path}H${list(values).length}V0Z`;
}

/** The events of a strip, as lines: a fault over all of its height. */
const events = (own) => Object.keys(MARKS).map((kind) => {
  const those = own.filter((mark) => mark.kind === kind);
  return those.length > 0 && svg("path", { class: `event ${kind}`, d: those.map(({ at }) => `M${at.toFixed(3)} -1V${kind === "wrong" ? 1 : -0.5}`).join("") });
});

/** Bytes over time: direct above the axis, staged below it. `zoom` is called with a range that the user has chosen. */
function strip(lane, highest, name, own, zoom = null) {
  let [view, at, anchor] = [whole, null, null];
  const mark = svg("rect", { class: "mark", y: -1, height: 2, visibility: "hidden" });
  const picture = svg("svg", {
    class: "strip", preserveAspectRatio: "none", role: "img", tabindex: "0",
    "aria-label": plain(`${name} over time: ${bytes(sum(lane.direct))} direct, ${bytes(sum(lane.staged))} staged. Arrow keys move${
      zoom ? "; with Shift they select, Enter zooms to what is selected, plus and minus zoom, 0 shows all" : ""}.`),
  }, svg("path", { class: "direct", d: outline(lane.direct, highest, -1) }), svg("path", { class: "staged", d: outline(lane.staged, highest, 1) }),
  svg("path", { class: "axis", d: `M${whole[0]} 0H${whole[1]}` }), events(own), mark);
  const clamp = (place) => Math.max(view[0], Math.min(view[1], place));
  const placeOf = (event) => {
    const box = picture.getBoundingClientRect();
    return clamp(view[0] + ((event.clientX - box.left) / box.width) * (view[1] - view[0]));
  };

  function show(range) {
    view = range;
    picture.setAttribute("viewBox", `${view[0]} -1 ${view[1] - view[0]} 2`);
  }

  function range() {
    const end = anchor ?? at;
    return [Math.min(at, end), Math.max(at, end) + 1];
  }

  function tell(place, x, y) {
    at = Math.min(Math.floor(clamp(place)), view[1] - 1);
    const [from, to] = range();
    mark.setAttribute("x", from);
    mark.setAttribute("width", to - from);
    mark.setAttribute("visibility", "visible");
    const total = (values) => bytes(sum(list(values).slice(Math.max(0, from), Math.max(0, to))));
    // As near as fingers and pixels get.
    const near = (view[1] - view[0]) / 150;
    const seen = own.filter((mark) => mark.at >= from - near && mark.at < to + near);
    showTip(x, y, picture, fromTo(from, to), `${total(lane.direct)} direct`, `${total(lane.staged)} staged`,
      ...seen.slice(0, 4).map((mark) => `${clock(mark.at * bucket)}: ${mark.text.slice(0, 160)}`), seen.length > 4 && `and ${count(seen.length - 4)} more`);
  }
  function leave() {
    at = anchor = null;
    mark.setAttribute("visibility", "hidden");
    hideTip();
  }
  function choose() {
    const chosen = range();
    leave();
    zoom(chosen);
  }

  picture.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    tell(placeOf(event), event.clientX, event.clientY);
    if (!zoom) return;
    anchor = at;
    picture.setPointerCapture(event.pointerId);
  });
  picture.addEventListener("pointermove", (event) => tell(placeOf(event), event.clientX, event.clientY));
  picture.addEventListener("pointerup", () => {
    if (anchor !== null && anchor !== at) choose();
    anchor = null;
  });
  picture.addEventListener("pointercancel", leave);
  picture.addEventListener("pointerleave", whenMouse(() => { if (anchor === null) leave(); }));
  picture.addEventListener("blur", leave);
  if (zoom) picture.addEventListener("dblclick", () => zoom(whole));
  picture.addEventListener("keydown", (event) => {
    const { left, width, top, height } = picture.getBoundingClientRect();
    const tellAt = (place) => tell(place, left + ((Math.floor(place) + 0.5 - view[0]) / (view[1] - view[0])) * width, top + height / 2);
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const middle = at === null ? (view[0] + view[1]) / 2 : at + 0.5;
    const half = (view[1] - view[0]) / 2;
    if (step) {
      anchor = event.shiftKey && zoom ? anchor ?? at ?? view[0] : null;
      tellAt(clamp(at === null ? view[0] : at + step));
    } else if (zoom && event.key === "Enter" && anchor !== null) choose();
    else if (zoom && event.key === "+") zoom([middle - half / 2, middle + half / 2]);
    else if (zoom && event.key === "-") zoom([middle - half * 2, middle + half * 2]);
    else if (zoom && event.key === "0") zoom(whole);
    else return;
    event.preventDefault();
  });
  show(whole);
  return { picture, show };
}

/** The axis of a range. */
function ticks([from, to]) {
  const span = (to - from) * bucket;
  const power = 10 ** Math.floor(Math.log10(span / 6));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= span / 6);
  const first = Math.ceil((begin + from * bucket) / step) * step - begin - from * bucket;
  const made = [];
  for (let at = first; at <= span * 0.97; at += step) {
    const tick = el("span", {}, clock(from * bucket + at));
    tick.style.left = `${(100 * at) / span}%`;
    made.push(tick);
  }
  return made;
}

/** Lanes of pairs and of processes: what each is called, and what happened to it. */
function groups() {
  const pairLanes = lanes.map((lane) => ({ lane, name: way(lane), sort: pairAt.get(place(lane)) || {}, own: marks.filter((mark) => place(mark) === place(lane)) }));
  const fileLanes = list(timeline.files).filter((lane) => fileAt.has(lane.file)).map((lane) =>
    ({ lane, name: fileName(lane.file), odd: oddness(fileAt.get(lane.file)), own: marks.filter((mark) => mark.file === lane.file) }));
  return [
    ["Pairs", "pair", pairLanes.sort((a, b) => worstFirst(a.sort, b.sort))],
    ["Processes", "process", fileLanes.sort((a, b) => b.odd - a.odd)],
  ].map(([label, one, rows]) => ({ label, one, rows: rows.filter(({ lane, own }) => peak(lane) > 0 || own.length > 0) }));
}

function timeLine() {
  const all = { direct: [], staged: [] };
  for (const lane of lanes) {
    for (const name of ["direct", "staged"]) list(lane[name]).forEach((value, index) => { all[name][index] = number(all[name][index]) + number(value); });
  }
  const [byPair, byProcess] = groups();
  if (peak(all) === 0) return null;
  let [view, group, shown, lanesShown] = [whole, byPair, 8, []];
  const rest = el("div", { class: "lanes" });
  const axis = el("div", { class: "ticks", "aria-hidden": "true" });
  const span = el("output", { class: "quiet small" });
  const more = button("pill more", "", () => { shown += 64; renew(); });

  /** Shows a range in all lanes; the first strip shows what it is of all. */
  function zoom([from, to]) {
    const width = Math.min(whole[1] - whole[0], Math.max(NARROWEST, to - from));
    const start = Math.max(whole[0], Math.min(whole[1] - width, (from + to - width) / 2));
    view = [start, start + width];
    lanesShown.forEach((one) => one.show(view));
    axis.replaceChildren(...ticks(view));
    const isPart = width < whole[1] - whole[0];
    frame.setAttribute("visibility", isPart ? "visible" : "hidden");
    frame.setAttribute("x", start);
    frame.setAttribute("width", width);
    out.disabled = back.disabled = !isPart;
    within.disabled = width <= NARROWEST;
    span.replaceChildren(isPart ? fromTo(...view) : "");
  }
  const by = (factor) => () => {
    const [middle, half] = [(view[0] + view[1]) / 2, ((view[1] - view[0]) / 2) * factor];
    zoom([middle - half, middle + half]);
  };
  const [within, out, back] = [["+", "Zoom in", by(0.5)], ["−", "Zoom out", by(2)], ["All", "Show all", () => zoom(whole)]].map(([words, title, act]) => {
    const made = button("pill", words, act);
    made.setAttribute("aria-label", title);
    return made;
  });

  const row = (lane, name, top, style, own) => {
    const { picture, show } = strip(lane, top, name, own, zoom);
    const [direct, staged] = [sum(lane.direct), sum(lane.staged)];
    const made = el("div", { class: `lane ${style}` }, el("span", {}, name), picture, el("span", { class: "quiet" },
      direct > 0 && `${bytes(direct)} direct`, direct > 0 && staged > 0 && el("br", {}), staged > 0 && `${bytes(staged)} staged`));
    return { made, picture, show };
  };
  const overview = row(all, byPair.rows.length === 1 ? byPair.rows[0].name : "Direct and staged", peak(all), "whole", marks);
  const frame = svg("rect", { class: "frame", y: -1, height: 2, visibility: "hidden" });
  overview.picture.append(frame);

  function renew() {
    const highest = most(group.rows.map(({ lane }) => peak(lane)));
    // One pair alone has the lane of all copies.
    lanesShown = (group.rows.length > 1 ? group.rows : []).slice(0, shown).map(({ lane, name, own }) => row(lane, name, highest, "", own));
    rest.replaceChildren(...lanesShown.map(({ made }) => made));
    more.hidden = shown >= group.rows.length;
    more.textContent = `Show ${count(Math.min(64, group.rows.length - shown))} more of ${several(group.rows.length, group.one, group.label.toLowerCase())}`;
    zoom(view);
  }

  const kinds = Object.keys(MARKS).filter((kind) => marks.some((mark) => mark.kind === kind));
  const legend = el("div", { class: "legend" }, ["direct", "staged"].filter((kind) => sum(all[kind]) > 0).map((kind) => el("span", {}, el("i", { class: `swatch ${kind}` }), kind)),
    kinds.map((kind) => el("span", {}, svg("svg", { class: "swatch", viewBox: "0 -1 2 2", "aria-hidden": "true" }, svg("path", { class: `event ${kind}`, d: "M1 -1V1" })), MARKS[kind])));
  const choice = byProcess.rows.length > 1 && choiceOf("lanes", "Lanes", [byPair, byProcess].map(({ label }) => label), (index) => {
    [group, shown] = [[byPair, byProcess][index], 8];
    renew();
  });
  renew();
  return [
    head("Timeline", `Bytes per ${duration(bucket)}, by the time of the call: direct above the line, staged below it. Drag over a part to zoom in.`,
      choice, el("span", { class: "zoom" }, span, within, out, back)),
    el("div", { class: "lanes" }, overview.made, rest, el("div", { class: "lane scale" }, el("span", {}), axis, el("span", {}))), more, legend,
  ];
}
