"use strict";
/* A report's view (see report_view.py) as a section of a page. */

(function () {
  const { el, percent, words, table, longTable } = shardwright;
  const TERMS = [
    "matmul", "attention", "elementwise", "recompute", "exposed_tp", "exposed_dp", "exposed_pp",
    "exposed_cp", "exposed_ep", "bubble", "optimizer", "host", "unattributed",
  ];

  /* A term keeps its colour everywhere: the class that the style sheet gives it. */
  shardwright.termClass = function (term) {
    const place = TERMS.indexOf(term);
    return "term" + (place < 0 ? TERMS.length : place);
  };

  function memoryBar(bar) {
    const state = bar.share > 1 ? "over" : bar.share > 0.9 ? "tight" : "fits";
    const label = percent(bar.share) + " of " + bar.tier + " reserved";
    return el("span", { class: "memory" },
      el("progress", { class: state, max: 1, value: Math.min(1, bar.share), "aria-label": label }),
      (bar.tier === "hbm" ? " " : " " + bar.tier + " ") + bar.text);
  }

  function answer(view) {
    const verdict = view.feasible ? "Fits." : "Does not fit: " + view.excess.join("; ") + ".";
    const facts = [["plan", view.shape], ["memory", memoryBar(view.memory)], ...view.facts];
    return el("div", { class: "answer" },
      el("p", { class: view.feasible ? "verdict fits" : "verdict over" }, verdict),
      el("dl", {}, facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])));
  }

  function assumptions(view) {
    const rows = view.assumptions;
    return el("aside", { class: "assumptions", "aria-label": "Assumptions" },
      el("h3", {}, rows.length ? "Assumed (" + rows.length + ")" : "Nothing was assumed"),
      el("ul", { tabindex: rows.length > 6 ? "0" : null },
        rows.map((row) =>
          el("li", {}, el("code", {}, row.path), " ", el("b", {}, row.value), ": " + row.why))));
  }

  function time(view) {
    const strip = el("div", { class: "strip", "aria-hidden": "true" });
    const rows = view.terms.map((term) => {
      const piece = el("span", { class: shardwright.termClass(term.term), title: words(term.term) });
      piece.style.flexGrow = String(term.share);
      strip.append(piece);
      const swatch = el("i", { class: "swatch " + shardwright.termClass(term.term) });
      return [el("span", {}, swatch, words(term.term)), term.text, percent(term.share), term.meaning];
    });
    return el("section", {}, el("h3", {}, "Where the step goes"), strip,
      table("Terms of the step; they add up to it", ["term", "seconds", "share", "what it is"], rows,
        ["seconds", "share"]),
      el("p", { class: "note" }, "prices: " + view.sources));
  }

  function stages(view) {
    const rows = view.stages.map((row) => [
      row.stage, row.layers, row.devices, row.tp, row.dp, row.shard, row.recompute,
      el("span", { class: "tiers" }, row.tiers.map(memoryBar)),
    ]);
    const heads = ["stage", "layers", "devices", "tp", "dp", "shard", "recompute", "memory"];
    return el("section", {}, el("h3", {}, "Stages and layers"),
      longTable("How each stage splits its layers", heads, rows, ["dp"]));
  }

  function memoryTerms(view) {
    const names = view.memory_terms.terms.map((term) => term.name);
    const rows = view.memory_terms.rows.map((row) => [
      row.place, row.tier, ...row.by, row.reserved, row.capacity,
    ]);
    const numbers = [...names, "reserved", "capacity"];
    return el("details", {}, el("summary", {}, "Memory by term"),
      longTable("Memory of a device at its peak", ["stage", "tier", ...numbers], rows, numbers),
      el("dl", { class: "meanings" }, view.memory_terms.terms.flatMap((term) =>
        [el("dt", {}, term.name), el("dd", {}, term.meaning)])));
  }

  function rivals(view) {
    if (!view.rivals.length) return "";
    const rows = view.rivals.map((other) => [other.by, other.shape, other.step,
      other.simplest ? "simplest" : ""]);
    return el("section", {}, el("h3", {}, "Lost to this plan"),
      table("Plans that lost, and the term that lost", ["by", "plan", "step", "note"], rows, ["step"]));
  }

  shardwright.report = function (view) {
    return el("article", { class: "report" },
      el("h2", {}, view.title),
      el("p", { class: "cluster" }, "on " + view.cluster),
      el("div", { class: "beside" }, answer(view), assumptions(view)),
      time(view), stages(view), memoryTerms(view), rivals(view));
  };
})();
