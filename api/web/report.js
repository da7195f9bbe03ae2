"use strict";
/* A report's view (see report_view.py) as a section of a page. */

(function () {
  const { el, percent, words, table, longTable } = shardwright;
  const TERMS = [
    "matmul", "attention", "elementwise", "recompute", "exposed_tp", "exposed_dp", "exposed_pp",
    "exposed_cp", "exposed_ep", "bubble", "optimizer", "host", "unattributed",
  ];
  const HEADS = { tp: "split", part: "part", group: "devices", techniques: "also" };

  /* A term keeps its colour everywhere: the class that the style sheet gives it. Hidden traffic is pale. */
  shardwright.termClass = function (term) {
    if (term.startsWith("overlapped_")) return "overlapped";
    const place = TERMS.indexOf(term);
    return "term" + (place < 0 ? TERMS.length : place);
  };

  /* A share of memory; its colour says whether it fits, and so does the text beside it. */
  shardwright.memoryBar = function (bar) {
    const state = bar.share > 1 ? "over" : bar.share > 0.9 ? "tight" : "";
    const label = percent(bar.share) + " of " + bar.tier + " reserved";
    return el("progress", { class: state, max: 1, value: Math.min(1, bar.share), "aria-label": label });
  };

  function memory(bar) {
    return el("span", {}, shardwright.memoryBar(bar),
      (bar.tier === "hbm" ? " " : " " + bar.tier + " ") + bar.text);
  }

  /* Shares of a whole, side by side; what is left of the whole stays empty. */
  shardwright.strip = function (terms) {
    const strip = el("div", { class: "strip", "aria-hidden": "true" });
    let left = 1;
    for (const term of terms) {
      const piece = el("span", { class: shardwright.termClass(term.term), title: words(term.term) });
      piece.style.flexGrow = String(term.share);
      left -= term.share;
      strip.append(piece);
    }
    const rest = el("span", { class: "rest" });
    rest.style.flexGrow = String(Math.max(0, left));
    strip.append(rest);
    return strip;
  };

  shardwright.swatch = function (term) {
    return el("span", {}, el("i", { class: "swatch " + shardwright.termClass(term) }), words(term));
  };

  /* The figures that a person looks for first, and how full the fullest memory is. */
  shardwright.figures = function (rows, bar, feasible) {
    const figure = (name, value, note) => el("div", { class: "figure" }, el("dt", {}, name),
      el("dd", {}, el("div", { class: "value" }, value), el("div", { class: "note" }, note)));
    const found = rows.map((row) => figure(row.name, row.value, row.note));
    if (bar) {
      const verdict = el("b", { class: feasible ? "fits" : "over" }, feasible ? "fits" : "does not fit");
      found.push(figure("fullest memory", percent(bar.share),
        [shardwright.memoryBar(bar), bar.text + " of " + bar.tier + ", ", verdict]));
    }
    return el("dl", { class: "figures card" }, found);
  };

  /* Said only of a proof: the search may have been cut short. */
  const PROVEN = "every legal way that the question leaves was simulated or ruled out by a proven bound";

  function facts(view) {
    const rows = [["plan", el("span", { class: "shape" }, view.shape)], ...view.facts];
    if (view.proven) rows.push(["proof", el("span", { class: "fits" }, PROVEN)]);
    return el("dl", { class: "facts card" },
      rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
  }

  function assumptions(view) {
    const rows = view.assumptions;
    return el("aside", { class: "assumptions card", "aria-label": "Assumptions" },
      el("h3", {}, rows.length ? "Assumed (" + rows.length + ")" : "Nothing was assumed"),
      el("ul", { tabindex: rows.length > 6 ? "0" : null },
        rows.map((row) =>
          el("li", {}, el("code", {}, row.path), " ", el("b", {}, row.value), el("span", {}, row.why)))));
  }

  function time(view) {
    const rows = view.terms.map((term) =>
      [shardwright.swatch(term.term), term.text, percent(term.share), term.meaning]);
    return el("section", { class: "card" }, el("h3", {}, "Where the step goes"),
      shardwright.strip(view.terms),
      table("Terms of the step; they add up to it", ["term", "seconds", "share", "what it is"], rows,
        ["seconds", "share"], ["what it is"]),
      el("p", { class: "note" }, "prices: " + view.sources));
  }

  function stages(view) {
    const rows = view.stages.map((row) => [
      row.stage, row.layers, row.devices, row.tp, row.dp, row.shard, row.recompute,
      el("span", { class: "tiers" }, row.tiers.map(memory)),
    ]);
    const heads = ["stage", "layers", "devices", "tp", "dp", "shard", "recompute", "memory"];
    return el("section", { class: "card" }, el("h3", {}, "Stages"),
      longTable("How each stage splits its layers", heads, rows, ["dp"], ["layers"]));
  }

  function layers(view) {
    const heads = view.layers.heads.map((name) => HEADS[name] || name);
    return el("details", { class: "card" }, el("summary", {}, "Strategy of each layer"),
      longTable("Layers in a row that are treated alike", heads, view.layers.rows));
  }

  function overlaps(view) {
    if (!view.overlaps.length) return "";
    const rows = view.overlaps.map((row) =>
      [row.layer, row.layers, row.forward, row.backward, row.kernels, row.saved]);
    const heads = ["layer", "such layers", "shows forward", "shows backward", "kernels", "saved a layer"];
    return el("section", { class: "card" }, el("h3", {}, "Tensor-parallel collectives"),
      longTable("A layer's collectives in one micro-batch: what shows of them, of what shows without its techniques", heads, rows,
        heads.slice(1)));
  }

  function memoryTerms(view) {
    const names = view.memory_terms.terms.map((term) => term.name);
    const rows = view.memory_terms.rows.map((row) => [
      row.place, row.tier, ...row.by, row.reserved, row.capacity,
    ]);
    const numbers = [...names, "reserved", "capacity"];
    return el("details", { class: "card" }, el("summary", {}, "Memory by term"),
      longTable("Memory of a device at its peak", ["stage", "tier", ...numbers], rows, numbers),
      el("dl", { class: "facts meanings" }, view.memory_terms.terms.flatMap((term) =>
        [el("dt", {}, term.name), el("dd", {}, term.meaning)])));
  }

  function rivals(view) {
    if (!view.rivals.length) return "";
    const rows = view.rivals.map((other) => [other.by, el("span", { class: "shape" }, other.shape),
      other.step, [other.fastest && "fastest", other.simplest && "simplest"].filter(Boolean).join(", ")]);
    return el("section", { class: "card" }, el("h3", {}, "Other plans"),
      table("The fastest where this one is simpler, then the best of other families, and the term that lost", ["by", "plan", "step", "note"], rows, ["step"],
        ["plan"]));
  }

  shardwright.report = function (view) {
    const excess = view.feasible ? "" :
      el("p", { class: "verdict over" }, "Does not fit: " + view.excess.join("; ") + ".");
    return el("article", { class: "report" },
      el("header", {}, el("h2", {}, view.title), el("p", { class: "cluster" }, "on " + view.cluster)),
      excess, shardwright.figures(view.figures, view.memory, view.feasible), facts(view),
      el("div", { class: "beside" }, time(view), assumptions(view)),
      stages(view), layers(view), overlaps(view), memoryTerms(view), rivals(view));
  };
})();
