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

// ---- What may be wider than the page

/** Scrolls sideways, and has a sign on each side where there is more. */
function scroller(attributes, content) {
  const inner = el("div", { class: "scroll", ...attributes }, content);
  const outer = el("div", { class: "scroller" }, inner, el("p", { class: "hint quiet small" }, "Scroll sideways for the rest"));
  const update = () => {
    outer.classList.toggle("left", inner.scrollLeft > 1);
    outer.classList.toggle("right", inner.scrollWidth - inner.clientWidth - inner.scrollLeft > 1);
  };
  const observer = new ResizeObserver(update);
  observer.observe(inner);
  observer.observe(content);
  inner.addEventListener("scroll", update, { passive: true });
  return outer;
}

// ---- Tables

/** A column of text: `value` is what it is sorted by, and shown if there is no `cell`. */
const text = (head, value, cell, style) => ({ head, value, style, cell: cell || ((row) => value(row) ?? "–") });
const short = (head, value, cell) => text(head, value, cell, "keep");
const codes = (head, value) => text(head, value, (row) => code(value(row)), "keep");
const figure = (head, value, words = count) => ({ head, value, right: true, style: "right", cell: (row) => words(value(row)) });
const hostTimes = ["p50", "p99", "max", "total"].map((what) =>
  ({ ...figure(what === "p50" ? "Host p50" : what, (row) => row.host_ns?.[what]), cell: (row) => row.host_text?.[what] ?? "–" }));

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
    scroller({ tabindex: "0", role: "region", "aria-label": label },
      el("table", { class: "rows" }, el("caption", { class: "hidden" }, `${label}; a header sorts by its column.`),
        el("thead", {}, el("tr", {}, heads)), body)),
    more,
  ];
}

const lineName = ({ file, line, function: name, outer }) =>
  [`${String(file).split("/").pop()}:${line} in ${name}`, ...list(outer).map(lineName)].join(" < ");
/** Callers of which it cannot be told which one it is: what called is on the right. */
const chain = (caller) => String(caller).replaceAll(" < ", " ← ");
const placeName = ({ site, caller, python }) => (python ? `${lineName(python)}, ${chain(caller || site)}` : chain(caller || site || "–"));
const sites = (places) => (list(places).length === 0 ? el("p", { class: "quiet small" }, "The place is not known.")
  : el("ul", { class: "sites small" }, list(places).map((one) => el("li", {}, quiet(`${count(one.count)} ×`), code(placeName(one))))));
