"use strict";
/* The plans that were asked for, the newest first. */

(function () {
  const { el } = shardwright;
  const PAGE = 20;

  /* A job in a few words: what was asked, where that is short. */
  shardwright.jobText = function (job) {
    const asked = job.asked || {};
    return (asked.model || "own model") + " on " + (asked.cluster || "own cluster") +
      (asked.global_batch ? ", " + asked.global_batch + " × " + (asked.seq_len || "?") : "");
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
