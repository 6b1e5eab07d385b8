// ---- The verdict

/** A way, and why it was taken. */
const wayOf = (row) => (row.path && row.why ? `${row.path}: ${row.why}` : row.path);

/** The words for a call's copy. */
const copied = (call) => [call.function, Number.isInteger(call.src) && Number.isInteger(call.dst) && way(call), call.bytes && `of ${bytes(call.bytes)}`].filter(Boolean).join(" ");

/** The report's sentences: the worst first. Those about missing data stand before all. */
const said = list(data.verdict).filter(({ word }) => word !== "Incomplete");

/** A pair does not break at the end of a line. */
const spoken = (text) => sentence(text.replaceAll(" > ", "\u00a0>\u00a0"));

function verdict() {
  const [first = { level: "note", word: "Nothing to say", text: "" }, ...others] = said;
  const link = (to) => to && ["\u00a0", el("a", { href: `#${to}` }, "Show")];
  return el("div", { id: "verdict" },
    data.filter && el("p", { class: "gaps" }, "Only calls that fit ", el("code", {}, data.filter), " are counted here."),
    gaps.length > 0 && el("div", { class: "gaps" }, el("p", {}, el("b", {}, `Not everything is known: ${lowerBounds ? "bytes and calls are lower bounds" : "counts and bytes are whole"}.`)),
      el("ul", {}, gaps.map((gap) => el("li", {}, sentence(gap))))),
    el("span", { class: `tag ${first.level}` }, first.word), el("h1", {}, spoken(first.text)),
    el("p", { class: "todo" }, spoken(first.more || ""), link(first.section)),
    others.length > 0 && el("ul", { class: "also" }, others.map((other) =>
      el("li", {}, el("span", { class: `tag ${other.level}` }, other.word), el("span", {}, spoken(other.text), link(other.section))))));
}

function figures() {
  const parts = [["direct", direct], ["staged", staged], ["hand", byHand], ["other", total - direct - staged - byHand]].filter(([, part]) => part > 0);
  const bar = el("div", { class: "bar", "aria-hidden": "true" }, parts.map(([name]) => el("i", { class: name })));
  parts.forEach(([, part], index) => { bar.children[index].style.flexGrow = part / total; });
  const figure = (term, value, more) => el("div", {}, el("dt", {}, term), el("dd", {}, value), el("dd", { class: "more" }, more));
  const least = () => lowerBounds && el("small", {}, "at least");
  const graded = (severity) => several(findings.filter((finding) => finding.severity === severity).length, severity);
  return [
    el("dl", { class: "figures" },
      figure("Between GPUs", [least(), bytes(total), bar],
        parts.map(([name, part]) => `${name === "hand" ? "by hand" : name} ${bytes(part)} (${percent(part, total)})`).join(" · ") || "nothing was copied"),
      figure("Avoidable staging", [lost.seconds > 0 && el("small", {}, "about"), lost.seconds === 0 ? "none" : lost.seconds_text ?? "–"],
        share ? `${percent(lost.seconds * 1e9, share)} of the run` : Number.isFinite(lost.seconds) ? "summed over pairs" : "not known"),
      figure("Copies", [least(), count(sum(between, (pair) => pair.calls))], `on ${several(used.length, "pair")}`),
      figure("Host time", [least(), duration(sum(between, (pair) => pair.host_ns?.total))], "in all threads"),
      figure("Findings", [least(), count(findings.length)], `${graded("hazard")}, ${graded("error")}`),
      figure("Failed calls", [least(), count(failed)], never.length > 0 ? bad(`${count(never.length)} never returned`) : cutOff.length > 0 ? `${count(cutOff.length)} cut off` : unfinished.length === 0 && gaps.length === 0 && "all returned")),
    lost.basis && el("p", { class: "basis quiet small" }, "Avoidable staging: ", prose(lost.basis)),
  ];
}
