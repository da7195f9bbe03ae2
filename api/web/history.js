"use strict";
/* The plans that were asked for, the newest first. */

(function () {
  const { el } = shardwright;
  const PAGE = 20;

  const gib = (what) => (amount) => what + " " + amount + " GiB";
  const plain = (word) => word;
  const WISHES = [["dtype", plain], ["optimizer", plain], ["trainable", plain],
    ["stack", plain], ["objective", (word) => (word === "throughput" ? "" : word)],
    ["prefer", (word) => "prefer " + word], ["framework", (name) => "for " + name], ["memory_gib", gib("within")], ["host_gib", gib("host")],
    ["nvme_gib", gib("drives")],
    ["calibration", (word) => "calibration " + word], ["oom_risk", (risk) => "risk " + risk],
    ["pins", (pins) => pins.join(", ")]];

  /* A job in a few words: what was asked, where that is short. */
  shardwright.jobText = function (job) {
    const asked = job.asked || {};
    const named = asked.model || asked.model_name || "own model";
    const batch = asked.global_batch ||
      (asked.global_batch_tokens ? asked.global_batch_tokens + " tokens" : "largest batch");
    const sized = batch !== "largest batch" || asked.seq_len;
    const size = sized ? ", " + batch + " × " + (asked.seq_len || "longest") : "";
    const wishes = WISHES.map(([key, text]) => (asked[key] ? text(asked[key]) : "")).filter(Boolean);
    return [named + " on " + (asked.cluster || "own cluster") + size, ...wishes].join(", ");
  };

  /* Names of several jobs that are apart: of equal ones, when they were asked, and their number. */
  shardwright.jobNames = function (jobs) {
    const count = (texts) => texts.reduce((seen, text) => seen.set(text, (seen.get(text) || 0) + 1), new Map());
    let names = jobs.map(shardwright.jobText);
    for (const more of [(job) => ", asked " + whenText(job), (job) => ", " + job.id.slice(-4)]) {
      const seen = count(names);
      names = names.map((name, n) => (seen.get(name) > 1 ? name + more(jobs[n]) : name));
    }
    return names;
  };

  const whenText = (job) => new Date(job.created_at).toLocaleString([], { dateStyle: "short", timeStyle: "short" });

  /* The list: {box, load(), jobs(), mark(id)}. */
  shardwright.history = function () {
    const items = el("ul", {}), empty = el("p", { class: "note" }, "None yet.");
    const more = el("button", { type: "button", hidden: true, onclick: () => load(cursor) }, "Older ones");
    let jobs = [], cursor = null, current = "";
    const draw = function () {
      items.replaceChildren(...jobs.map((job) => el("li", {},
        el("a", { href: "#" + job.id, "aria-current": job.id === current ? "page" : null },
          el("span", {}, shardwright.jobText(job)),
          el("span", { class: "note" }, el("span", { class: "state " + job.state }, job.state), " ", whenText(job))))));
      empty.hidden = jobs.length > 0;
      more.hidden = cursor === null;
    };
    const load = async function (after) {
      const query = "?limit=" + PAGE + (after ? "&cursor=" + encodeURIComponent(after) : "");
      const page = await shardwright.ask("/v1/plans" + query);
      const known = new Set(page.items.map((job) => job.id));
      jobs = after ? [...jobs.filter((job) => !known.has(job.id)), ...page.items] : page.items;
      cursor = page.next_cursor;
      draw();
    };
    const mark = function (id) {
      current = id;
      draw();
    };
    const box = el("nav", { class: "history", "aria-label": "Plans asked for" },
      el("h2", {}, "Plans asked for"), items, empty, more);
    return { box, load: () => load(null), mark, all: () => jobs,
      done: () => jobs.filter((job) => job.state === "done") };
  };
})();
