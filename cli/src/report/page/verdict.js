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

/** How processes ended that did not end well, and which. */
const ends = () => [...Map.groupBy(files.filter(endedBadly), endOf)].map(([how, those]) => {
  const names = `${some(those.map(({ index }) => fileName(index)), 3)}${files.length > those.length ? ` (of ${several(files.length, "process", "processes")})` : ""}`;
  const [level, word, text] = those[0].end.how === "signal" ? ["bad", "Signal", `${how} ended ${names}.`] : ["warn", "Exit status", `${names} ended with ${how}.`];
  return [level, word, text, "The figures are of what was recorded until then. The table of processes has the last copy of each.", "processes"];
});

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
  const blocked = between.filter((pair) => pair.blocked && failureOf(pair)?.verified !== "in use");
  if (blocked.length > 0) {
    say("bad", "Blocked", `Peer access loses data or hangs on ${some(blocked.map(way), 3)}. p2pshim sent ${
      bound(bytes(sum(blocked, (pair) => pair.staged)))} through the host instead.`, "`p2pshim doctor` tests the pairs and names what is likely to be in the way. The panel of a pair has what verification saw.", "pairs");
  }
  for (const one of ends()) say(...one);
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
      `${bound(`${bytes(could)} of ${bytes(total)}`)} between GPUs (${percent(could, total)}) went through the host but could be direct${
        reason ? `: ${reason.why.replace(/^staged:? */, "")}` : ""}. ${cost}`, reason && remedy(reason.why), "pairs");
  } else if (staged > 0 && blocked.length === 0) {
    say(avoidable >= total * 0.01 ? "warn" : "note", "Staged", `${bound(`${bytes(staged)} of ${bytes(total)}`)} between GPUs went through the host: ${why[0].why}.`, remedy(why[0].why), "pairs");
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
      ? "The one that has waited longest copied last" : "It copied last"} ${duration(last.age_ns)} before: ${copied(last)}.`, "", "processes");
  }
  if (nvlink.text) say("note", "NVLink", [nvlink.text, nvlink.more].filter(Boolean).join(" "), "", "environment");
  const order = ["bad", "warn", "note"];
  said.sort((a, b) => order.indexOf(a.level) - order.indexOf(b.level));
  if (said.length > 0 && said[0].level !== "note") return said;

  const first = files.length === 0
    ? ["note", "Nothing to show", "There were no trace files to report on.", "Run a program with a trace, and pass its files to `p2pshim report`."]
    : total === 0
      ? ["note", "No copies", "No copies between GPUs were recorded.", "The program may not have got that far, or it copies with functions that are not intercepted."]
      : [...(gaps.length > 0 ? ["note", "As far as recorded"] : ["good", "Fine"]), `${
        staged > 0 ? bound(`${bytes(direct)} of ${bytes(total)}`) : gaps.length > 0 ? bound(bytes(total)) : `All ${bytes(total)}`} between GPUs went directly${
        staged >= total * 0.01 ? `, and the rest had no better path${why.length > 0 ? `: ${why[0].why}` : ""}` : ""}.`, "There is nothing to do."];
  return [{ level: first[0], word: first[1], text: first[2], todo: first[3] }, ...said];
}

function verdict() {
  const [first, ...others] = verdicts();
  const link = (to) => to && ["\u00a0", el("a", { href: `#${to}` }, "Show")];
  return el("div", { id: "verdict" },
    gaps.length > 0 && el("div", { class: "gaps" }, el("p", {}, el("b", {}, "Not everything was recorded: every number here is a lower bound.")),
      el("ul", {}, gaps.map((gap) => el("li", {}, sentence(gap))))),
    el("span", { class: `tag ${first.level}` }, first.word), el("h1", {}, sentence(first.text.replaceAll(" → ", "\u00a0→\u00a0"))),
    el("p", { class: "todo" }, first.level !== "good" && el("b", {}, "What to do: "), sentence(first.todo || "See below."), link(first.to)),
    others.length > 0 && el("ul", { class: "also" }, others.map((other) =>
      el("li", {}, el("span", { class: `tag ${other.level}` }, other.word), el("span", {}, sentence(other.text), link(other.to))))));
}

function figures() {
  const parts = [["direct", direct], ["staged", staged], ["other", total - direct - staged]].filter(([, part]) => part > 0);
  const bar = el("div", { class: "bar", "aria-hidden": "true" }, parts.map(([name]) => el("i", { class: name })));
  parts.forEach(([, part], index) => { bar.children[index].style.flexGrow = part / total; });
  const figure = (term, value, more) => el("div", {}, el("dt", {}, term), el("dd", {}, value), el("dd", { class: "more" }, more));
  const least = () => gaps.length > 0 && el("small", {}, "at least");
  const graded = (severity) => several(findings.filter((finding) => finding.severity === severity).length, severity);
  return [
    el("dl", { class: "figures" },
      figure("Between GPUs", [least(), bytes(total), bar],
        parts.map(([name, part]) => `${name} ${bytes(part)} (${percent(part, total)})`).join(" · ") || "nothing was copied"),
      figure("Lost, estimated", lost.seconds === 0 ? "none" : known(lost.seconds, (n) => duration(n * 1e9)),
        share ? `${percent(lost.seconds * 1e9, share)} of the run` : Number.isFinite(lost.seconds) ? "summed over pairs" : "not known"),
      figure("Copies", [least(), count(sum(between, (pair) => pair.calls))], `on ${several(used.length, "pair")}`),
      figure("Host time", [least(), duration(sum(between, (pair) => pair.host_ns?.total))], "in all threads"),
      figure("Findings", [least(), count(findings.length)], `${graded("hazard")}, ${graded("error")}`),
      figure("Failed calls", [least(), count(failed)], unfinished.length > 0 ? bad(`${count(unfinished.length)} never returned`) : gaps.length === 0 && "all returned")),
    lost.basis && el("p", { class: "basis quiet small" }, "The estimate: ", prose(lost.basis)),
  ];
}
