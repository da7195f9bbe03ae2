"use strict";
/* The losses of a run (see run_view.py) as a curve; the points follow in words. */

(function () {
  const { el, drawn } = shardwright;
  const WIDE = 640, HIGH = 220, LEFT = 52, BOTTOM = 28, TOP = 10, RIGHT = 12, TICKS = 4;

  function curve(run) {
    const low = Math.min(...run.losses), high = Math.max(...run.losses);
    const first = run.steps[0], last = run.steps[run.steps.length - 1];
    const x = (step) => LEFT + ((step - first) / (last - first || 1)) * (WIDE - LEFT - RIGHT);
    const y = (loss) => TOP + ((high - loss) / (high - low || 1)) * (HIGH - TOP - BOTTOM);
    const picture = drawn("svg", { viewBox: "0 0 " + WIDE + " " + HIGH, role: "img", class: "curve",
      "aria-label": run.title });
    for (let n = 0; n <= TICKS; n++) {
      const loss = low + ((high - low) * n) / TICKS, step = Math.round(first + ((last - first) * n) / TICKS);
      picture.append(
        drawn("line", { x1: LEFT, x2: WIDE - RIGHT, y1: y(loss), y2: y(loss), class: "grid" }),
        drawn("text", { x: LEFT - 6, y: y(loss) + 4, "text-anchor": "end" }, loss.toPrecision(3)),
        drawn("text", { x: x(step), y: HIGH - 8, "text-anchor": n === TICKS ? "end" : "middle" }, String(step)));
      if (high === low) break;
    }
    const points = run.losses.map((loss, n) => x(run.steps[n]).toFixed(1) + "," + y(loss).toFixed(1));
    picture.append(drawn("polyline", { points: points.join(" "), class: "loss" }));
    return picture;
  }

  /* The section of a run: its curve, what it came to, and a note. */
  shardwright.run = function (run) {
    return el("section", { class: "card" }, el("h3", {}, "The run"), curve(run),
      el("p", { class: "note" }, run.title + (run.note ? "; " + run.note : "")));
  };
})();
