"use strict";
/* Elements and figures that every part of the page uses. Data only ever becomes text. */
var shardwright = {};

shardwright.el = function (tag, attributes) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of Array.prototype.slice.call(arguments, 2).flat()) {
    if (child === null || child === undefined || child === "") continue;
    made.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return made;
};

/* The same for pictures (SVG); the attributes are texts. */
shardwright.drawn = function (tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  if (text !== undefined) made.textContent = text;
  return made;
};

shardwright.seconds = function (value) {
  const size = Math.abs(Number(value.toPrecision(3)));
  if (!size) return "0 s";
  for (const [unit, scale] of [["s", 1], ["ms", 1e-3], ["us", 1e-6], ["ns", 1e-9]]) {
    if (size >= scale || unit === "ns") return shardwright.number(value / scale) + " " + unit;
  }
};

shardwright.number = function (value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
};

shardwright.percent = function (share) {
  if (share > 0 && share < 0.0005) return "<0.1 %";
  return (share * 100).toFixed(1) + " %";
};

shardwright.words = function (name) {
  return String(name).replace(/_/g, " ");
};

/* A table in a box that scrolls by itself, so that a narrow page does not; wordy columns wrap. */
shardwright.table = function (caption, heads, rows, numeric, wordy) {
  const el = shardwright.el;
  const right = new Set(numeric || []), wide = new Set(wordy || []);
  const kind = (head) => (right.has(head) ? "number" : wide.has(head) ? "wordy" : null);
  const cell = (tag, value, column, scope) =>
    el(tag, { class: kind(heads[column]), scope: scope }, value);
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    el(
      "table",
      {},
      el("caption", {}, caption),
      el("thead", {}, el("tr", {}, heads.map((head, n) => cell("th", head, n, "col")))),
      el(
        "tbody",
        {},
        rows.map((row) =>
          el("tr", { class: row[0] === "sum" ? "sum" : null }, row.map((value, n) => (n || value === "" ? cell("td", value, n) : cell("th", value, n, "row"))))
        )
      )
    )
  );
};

/* The first rows, and the others when they are asked for: a long list never freezes the page. */
shardwright.longTable = function (caption, heads, rows, numeric, wordy) {
  const el = shardwright.el;
  const box = el("div");
  let shown = Math.min(rows.length, shardwright.ROWS);
  const draw = function () {
    const table = shardwright.table(caption, heads, rows.slice(0, shown), numeric, wordy);
    const more = rows.length - shown;
    const button =
      more > 0 &&
      el(
        "button",
        {
          type: "button",
          onclick: function () {
            shown = Math.min(rows.length, shown + shardwright.MORE_ROWS);
            draw();
            const again = box.querySelector("button");
            (again || box.firstChild).focus();
          },
        },
        "Show " + Math.min(more, shardwright.MORE_ROWS) + " of " + more + " more rows"
      );
    box.replaceChildren(table, ...(button ? [button] : []));
  };
  draw();
  return box;
};
shardwright.ROWS = 40;
shardwright.MORE_ROWS = 400;

shardwright.download = function (label, name, kind, content) {
  return shardwright.el(
    "button",
    {
      type: "button",
      onclick: function () {
        const address = URL.createObjectURL(new Blob([content()], { type: kind }));
        const link = shardwright.el("a", { href: address, download: name });
        document.body.append(link);
        link.click();
        link.remove();
        setTimeout(() => URL.revokeObjectURL(address), 10000);
      },
    },
    label
  );
};
