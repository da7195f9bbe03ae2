"use strict";
/* A simulated step on a canvas: a row a stream, zoomed by wheel, buttons or keys. */

(function () {
  const { el, seconds, words, percent } = shardwright;
  const LABEL = 132, NARROW = 480, HEAD = 20, LOW_ROW = 18, HIGH_ROW = 26, FEW_ROWS = 12;

  /* Rows of spans out of Perfetto's events; times in seconds from the first start. */
  function rowsOf(trace) {
    const names = new Map(), rows = new Map();
    let first = Infinity, last = 0;
    for (const event of trace.traceEvents) {
      const key = event.pid + " " + event.tid;
      if (event.ph === "M" && event.name === "thread_name") names.set(key, event.args.name);
      if (event.ph !== "X") continue;
      if (!rows.has(key)) rows.set(key, { pid: event.pid, tid: event.tid, spans: [] });
      const span = { name: event.name, term: event.cat, start: event.ts / 1e6, dur: event.dur / 1e6 };
      rows.get(key).spans.push(span);
      first = Math.min(first, span.start);
      last = Math.max(last, span.start + span.dur);
    }
    const found = [...rows.entries()].map(([key, row]) => {
      const name = (names.get(key) || "").replace(/^communication |^technique |^(\w+) (?=\1$)/, "");
      row.label = "stage " + row.pid + " " + name;
      row.spans.sort((a, b) => a.start - b.start);
      for (const span of row.spans) span.start -= first;
      return row;
    });
    found.sort((a, b) => a.pid - b.pid || a.tid - b.tid);
    return { rows: found, length: rows.size ? last - first : 0 };
  }

  /* The first span that ends after a time, by halving. */
  function firstAfter(spans, time) {
    let low = 0, high = spans.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (spans[middle].start + spans[middle].dur < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  function Drawing(trace) {
    const { rows, length } = rowsOf(trace);
    this.rows = rows;
    this.rowHeight = rows.length > FEW_ROWS ? LOW_ROW : HIGH_ROW;
    this.length = length;
    this.from = 0;
    this.to = length;
    this.chosen = null;
    this.canvas = el("canvas", {
      tabindex: "0", role: "img",
      "aria-label": "Timeline of a step, " + rows.length + " streams, " + seconds(length) +
        ". Arrow keys move, plus and minus zoom, 0 shows all, page up and down choose a stream, " +
        "comma and full stop choose a span.",
    });
    this.said = el("p", { class: "span", "aria-live": "polite" }, "Point at a span, or choose one by key.");
    this.box = el("div", { class: "timeline" });
    const button = (label, title, does) =>
      el("button", { type: "button", title: title, "aria-label": title, onclick: does }, label);
    this.box.append(
      el("p", { class: "buttons" },
        button("+", "Zoom in", () => this.zoom(0.5)),
        button("−", "Zoom out", () => this.zoom(2)),
        button("All", "Show the whole step", () => this.show(0, this.length)),
        button("←", "Earlier", () => this.pan(-0.3)),
        button("→", "Later", () => this.pan(0.3))),
      el("div", { class: "canvas" }, this.canvas), this.said, this.legend());
    this.listen();
  }

  /* The colours of the terms that there are. */
  Drawing.prototype.legend = function () {
    const terms = new Set(this.rows.flatMap((row) => row.spans.map((span) => span.term)));
    return el("p", { class: "legend" }, [...terms].sort().map(shardwright.swatch));
  };

  /* Pixels for the names of the streams. */
  Drawing.prototype.labels = function () {
    return this.canvas.clientWidth < NARROW ? LABEL / 2 : LABEL;
  };

  Drawing.prototype.width = function () {
    return Math.max(80, this.canvas.clientWidth - this.labels());
  };

  Drawing.prototype.at = function (x) {
    return this.from + ((x - this.labels()) / this.width()) * (this.to - this.from);
  };

  Drawing.prototype.show = function (from, to) {
    const least = Math.max(this.length * 1e-6, 1e-12);
    const wide = Math.min(this.length, Math.max(least, to - from));
    this.from = Math.min(Math.max(0, from), this.length - wide);
    this.to = this.from + wide;
    this.draw();
  };

  Drawing.prototype.zoom = function (factor, around) {
    const middle = around === undefined ? (this.from + this.to) / 2 : around;
    this.show(middle - (middle - this.from) * factor, middle + (this.to - middle) * factor);
  };

  Drawing.prototype.pan = function (share) {
    const by = share * (this.to - this.from);
    this.show(this.from + by, this.to + by);
  };

  Drawing.prototype.choose = function (row, number) {
    row = Math.min(this.rows.length - 1, Math.max(0, row));
    const spans = this.rows[row].spans;
    number = Math.min(spans.length - 1, Math.max(0, number));
    this.chosen = { row, number };
    const span = spans[number];
    this.said.textContent = this.rows[row].label + ": " + span.name + ", " + words(span.term) + ", " +
      seconds(span.dur) + " (" + percent(span.dur / this.length) + " of the step) at " +
      seconds(span.start);
    if (span.start + span.dur < this.from || span.start > this.to) {
      const half = (this.to - this.from) / 2;
      this.show(span.start - half, span.start + half);
    } else this.draw();
  };

  Drawing.prototype.draw = function () {
    const canvas = this.canvas, scale = window.devicePixelRatio || 1;
    const wide = canvas.clientWidth, high = HEAD + this.rows.length * this.rowHeight;
    const ROW = this.rowHeight, LEFT = this.labels();
    if (!wide) return;
    canvas.style.height = high + "px";
    canvas.width = Math.round(wide * scale);
    canvas.height = Math.round(high * scale);
    const style = getComputedStyle(canvas), ink = canvas.getContext("2d");
    const colours = new Map();
    const colour = (term) => {
      if (!colours.has(term)) {
        colours.set(term, style.getPropertyValue("--" + shardwright.termClass(term)) || "gray");
      }
      return colours.get(term);
    };
    ink.scale(scale, scale);
    ink.font = "12px " + style.fontFamily;
    ink.textBaseline = "middle";
    this.ruler(ink, wide, high, style);
    const perSecond = this.width() / (this.to - this.from || 1);
    this.rows.forEach((row, place) => {
      const top = HEAD + place * ROW;
      ink.fillStyle = style.color;
      ink.fillText(row.label, 0, top + ROW / 2, LEFT - 8);
      let drawn = -1;
      for (let n = firstAfter(row.spans, this.from); n < row.spans.length; n++) {
        const span = row.spans[n];
        if (span.start > this.to) break;
        const left = LEFT + Math.max(0, (span.start - this.from) * perSecond);
        const right = Math.min(wide, LEFT + (span.start + span.dur - this.from) * perSecond);
        if (right < drawn + 0.5) continue; // what a pixel cannot show
        ink.fillStyle = colour(span.term);
        ink.fillRect(left, top + 2, Math.max(0.5, right - left), ROW - 4);
        drawn = right;
      }
    });
    if (this.chosen) {
      const span = this.rows[this.chosen.row].spans[this.chosen.number];
      const left = LEFT + (span.start - this.from) * perSecond;
      ink.strokeStyle = style.color;
      ink.lineWidth = 2;
      ink.strokeRect(left, HEAD + this.chosen.row * ROW + 1, Math.max(2, span.dur * perSecond), ROW - 2);
    }
  };

  Drawing.prototype.ruler = function (ink, wide, high, style) {
    const LEFT = this.labels(), steps = Math.max(1, Math.floor(this.width() / 120));
    ink.strokeStyle = ink.fillStyle = style.color;
    ink.globalAlpha = 0.6;
    for (let n = 0; n <= steps; n++) {
      const x = LEFT + (n / steps) * this.width();
      ink.textAlign = n === steps ? "right" : "left";
      ink.fillText(seconds(this.from + (n / steps) * (this.to - this.from)), n === steps ? x : x + 3, 8);
      ink.globalAlpha = 0.15;
      ink.beginPath();
      ink.moveTo(x, 0);
      ink.lineTo(x, high);
      ink.stroke();
      ink.globalAlpha = 0.6;
    }
    ink.textAlign = "left";
    ink.globalAlpha = 1;
  };

  Drawing.prototype.listen = function () {
    const canvas = this.canvas;
    const keys = {
      ArrowLeft: () => this.pan(-0.15), ArrowRight: () => this.pan(0.15),
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2),
      0: () => this.show(0, this.length), Home: () => this.show(0, this.length),
      PageUp: () => this.step(-1, 0), PageDown: () => this.step(1, 0),
      ",": () => this.step(0, -1), ".": () => this.step(0, 1),
    };
    canvas.addEventListener("keydown", (event) => {
      if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && document.activeElement !== canvas) return; // the page scrolls
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.at(event.offsetX));
    }, { passive: false });
    let drag = null;
    canvas.addEventListener("pointerdown", (event) => {
      drag = { x: event.clientX, from: this.from, to: this.to };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointerup", () => { drag = null; });
    canvas.addEventListener("pointermove", (event) => {
      if (drag) {
        const by = ((drag.x - event.clientX) / this.width()) * (drag.to - drag.from);
        this.show(drag.from + by, drag.to + by);
      } else this.point(event.offsetX, event.offsetY);
    });
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  };

  Drawing.prototype.point = function (x, y) {
    const row = Math.floor((y - HEAD) / this.rowHeight);
    if (row < 0 || row >= this.rows.length || x < this.labels()) return;
    const time = this.at(x), spans = this.rows[row].spans;
    const number = firstAfter(spans, time);
    const same = this.chosen && this.chosen.row === row && this.chosen.number === number;
    if (!same && number < spans.length && spans[number].start <= time) this.choose(row, number);
  };

  Drawing.prototype.step = function (rows, spans) {
    if (!this.rows.length) return;
    if (!this.chosen) return this.choose(0, firstAfter(this.rows[0].spans, this.from));
    const { row, number } = this.chosen;
    if (!rows) return this.choose(row, number + spans);
    const next = Math.min(this.rows.length - 1, Math.max(0, row + rows));
    return this.choose(next, firstAfter(this.rows[next].spans, this.from));
  };

  /* The section of a trace (a document in Perfetto's format), with its file to take away. */
  shardwright.timeline = function (trace) {
    const drawing = new Drawing(trace);
    const file = shardwright.download("Download for Perfetto", "step.perfetto.json",
      "application/json", () => JSON.stringify(trace));
    return el("section", { class: "steps card" },
      el("h3", {}, "The simulated step"),
      el("p", { class: "note" }, "Drag to move along; zoom by the buttons, or by the wheel once it has the focus. " +
        "Keys: arrows move, + and − zoom, 0 shows all, page up and down choose a stream, comma and full stop a span."),
      drawing.box, el("p", { class: "buttons" }, file));
  };
})();
