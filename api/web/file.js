"use strict";
/* Draws a page that carries its own data: a report's view, its run, its step's timeline. */

(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const page = document.getElementById("page");
  const plan = shardwright.download("Download the plan", "plan.json", "application/json",
    () => JSON.stringify(data.plan, null, 2));
  page.replaceChildren(
    shardwright.el("h1", {}, "Shardwright"),
    shardwright.report(data.view),
    ...(data.run ? [shardwright.run(data.run)] : []),
    data.trace ? shardwright.timeline(data.trace) : shardwright.el("p", {}, data.no_trace),
    shardwright.el("p", { class: "buttons" }, plan));
})();
