// ---- Processes: how each ended, and which differ from the others

/** How a process ended, in words. */
function endOf({ end, running }) {
  if (running || end?.how === "running") return "still runs";
  if (end?.how === "exec") return "became another program";
  if (end?.how === "signal") return end.signal || "a signal";
  if (end?.how === "exited") return `exit ${end.code}`;
  if (end?.how === "called-exit") return `called exit ${end.code}`;
  return "not known";
}
const endedBadly = ({ end }) => end?.how === "signal" || end?.code > 0;
const stagedShare = (file) => (file.copied_bytes > 0 ? number(file.staged_bytes) / file.copied_bytes : null);
const lastCopy = (file) => file.last_copy?.started ?? null;

/** Those that ended badly come first, then those that differ most from others of their run. */
const oddness = (file) => 100 * endedBadly(file) + 10 * (list(file.problems).length > 0 || file.dropped > 0) + list(file.differs).length;

function processDetail(file) {
  const named = (object) => Object.entries(object || {}).map(([name, value]) => `${name}=${value}`).join(", ");
  const [executable, ...command] = list(file.program);
  const last = file.last_copy;
  return el("dl", { class: "facts small" }, facts([
    ["File", code(file.path)],
    ["Executable", code(executable)],
    ["Command", code(command.join(" "))],
    ["Begun", moment(file.started)],
    ["Last copy", last && `${copied(last)}${last.path ? `, ${wayOf(last)}` : ""}, begun at ${since(last.started)}`],
    ["Room", `${bytes(file.limit)}, ${several(number(file.dropped), "call")} dropped`],
    ["GPUs", list(file.gpus).map(gpuName).join(", ")],
    ["Threads", list(file.threads).map(({ id, name, calls }) => `${name || "unnamed"} (${id}): ${several(calls, "call")}`).join("; ")],
    ["Versions", named(file.versions)],
    ["Variables", named(file.variables)],
  ]));
}

function processTable() {
  const has = (value) => files.some((file) => given(value(file)));
  const odd = (name, words, value) => (file) => (list(file.differs).includes(name) ? el("b", { class: "odd" }, words(value(file))) : words(value(file)));
  const marked = (name, head, value, words) => ({ ...figure(head, value, words), cell: odd(name, words, value) });
  return [
    head("Processes", files.length > 1 ? "Those that ended badly or differ most from the others come first; what differs is bold." : ""),
    table("Processes", [
      short("Process", (row) => fileName(row.index)),
      has((row) => row.host) && short("Host", (row) => row.host),
      has((row) => row.rank) && figure("PID", (row) => row.process, String),
      short("Ended", endOf, (row) => (endedBadly(row) ? bad(endOf(row)) : endOf(row))),
      has((row) => row.copied_bytes) && marked("copied", "Copied", (row) => row.copied_bytes, bytes),
      has((row) => row.staged_bytes) && marked("staged", "Staged", stagedShare, (value) => known(value, (part) => percent(part, 1))),
      has(lastCopy) && marked("last copy", "Last copy", lastCopy, since),
      figure("Calls", (row) => row.calls),
      has((row) => row.dropped > 0) && figure("Dropped", (row) => row.dropped, alarming),
      figure("Lasted", (row) => minus(row.ended, row.started), duration),
      text("Problems", (row) => list(row.problems).length, (row) => (list(row.problems).length > 0 ? bad(row.problems.join("; ")) : quiet("none")), "text"),
    ].filter(Boolean), [...files].sort((a, b) => oddness(b) - oddness(a)), { detail: processDetail }),
  ];
}
