"use strict";
/* This plan beside another one that was found here. */

(function () {
  const { el, table } = shardwright;

  function sides(view) {
    return el("div", { class: "sides" }, view.sides.map((side, n) => el("section", { class: "stack" },
      el("header", {}, el("h3", {}, n ? side.name : side.name + " (this plan)"), el("p", { class: "note" }, side.title)),
      shardwright.figures(side.figures, side.memory, side.feasible),
      el("p", { class: "shape" }, side.shape))));
  }

  function differences(title, rows) {
    return rows.length ? el("section", { class: "card" }, el("h3", {}, title),
      table("In the first plan and in the second", ["what", "first", "second"], rows, [], ["first", "second"])) : "";
  }

  /* A comparison's view (see comparison_view.py). */
  function drawn(view) {
    const marked = (row) => {
      const term = row[0].replace(/ /g, "_");
      return row[0] === "sum" ? row : [shardwright.swatch(term), ...row.slice(1)];
    };
    const [times, memory] = view.tables;
    return el("div", { class: "stack" },
      view.compared ? el("p", { class: "tight" }, view.compared) : "",
      el("p", { class: "verdict" }, view.verdict), sides(view),
      el("section", { class: "card" }, el("h3", {}, times.title),
        view.sides.map((side) =>
          el("div", { class: "bar" }, el("span", {}, side.name), shardwright.strip(side.terms))),
        table("Seconds by term", times.heads, times.rows.map(marked), times.heads.slice(1))),
      differences("Decided otherwise", view.decisions),
      differences("Asked otherwise", view.questions),
      el("section", { class: "card" }, el("h3", {}, memory.title),
        table("Bytes by term", memory.heads, memory.rows, memory.heads.slice(1))));
  }

  /* The panel of a plan: others() gives the plans that it can be compared with. */
  shardwright.comparison = function (planId, others) {
    const result = el("div", { class: "result" });
    const found = others().filter((job) => job.id !== planId);
    if (!found.length) {
      return el("p", { class: "card" }, "There is no other plan yet: ask for one, and compare it here.");
    }
    const names = shardwright.jobNames(found);
    const pick = shardwright.field("Compare with", el("select", {}, el("option", { value: "" }, "pick a plan…"),
      shardwright.options(found.map((job, n) => [job.id, names[n]]))));
    let wanted = "";
    pick.control.addEventListener("change", async function () {
      const other = wanted = pick.control.value;
      if (!other) return result.replaceChildren();
      try {
        const made = await shardwright.ask("/v1/plans/" + planId + "/compare/" + other);
        if (other !== wanted) return;
        result.replaceChildren(drawn(made.view));
        shardwright.say(made.view.verdict);
      } catch (error) {
        result.replaceChildren(el("p", { class: "wrong", role: "alert" }, error.message));
      }
    });
    return el("div", { class: "stack" }, el("div", { class: "card" }, pick.box), result);
  };
})();
