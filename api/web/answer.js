"use strict";
/* A plan that was found: its report, its step, questions about it, other plans, files. */

(function () {
  const { el } = shardwright;

  /* Tabs by the usual keys: arrows, Home, End. Each panel is made when it is first shown. */
  function tabs(label, parts) {
    const list = el("div", { class: "tabs", role: "tablist", "aria-label": label });
    const panels = el("div");
    const made = parts.map(([name, make], number) => {
      const tab = el("button", { type: "button", role: "tab", id: "tab" + number, "aria-controls": "panel" + number,
        onclick: () => show(number) }, name);
      const panel = el("div", { role: "tabpanel", id: "panel" + number, "aria-labelledby": "tab" + number,
        tabindex: "0" });
      list.append(tab);
      panels.append(panel);
      return { tab, panel, make };
    });
    function show(number) {
      made.forEach(({ tab, panel }, n) => {
        tab.setAttribute("aria-selected", String(n === number));
        tab.tabIndex = n === number ? 0 : -1;
        panel.hidden = n !== number;
      });
      const chosen = made[number];
      if (chosen.make) {
        const make = chosen.make;
        chosen.make = null;
        make(chosen.panel);
      }
    }
    list.addEventListener("keydown", function (event) {
      const at = made.findIndex(({ tab }) => tab === document.activeElement);
      const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: made.length - 1 }[event.key];
      if (at < 0 || to === undefined) return;
      event.preventDefault();
      const next = (to + made.length) % made.length;
      show(next);
      made[next].tab.focus();
    });
    show(0);
    return { list, panels };
  }

  async function drawTimeline(place, panel) {
    const waiting = el("p", {}, "drawing the step…");
    panel.replaceChildren(waiting);
    try {
      panel.replaceChildren(shardwright.timeline(await shardwright.ask(place + "/trace")));
    } catch (error) {
      panel.replaceChildren(el("p", { class: "wrong", role: "alert" }, error.message));
    }
  }

  /* The whole answer of a job: its view, and what more can be had of it. */
  shardwright.answer = function (job, view, others) {
    const place = "/v1/plans/" + job.id;
    const note = job.state === "cancelled" ?
      el("p", { class: "tight verdict" }, "The search was cancelled: this is its best plan.") : "";
    const { list, panels } = tabs("The plan", [
      ["Plan", (panel) => panel.append(shardwright.report(view))],
      ["Timeline", (panel) => drawTimeline(place, panel)],
      ["What if", (panel) => panel.append(shardwright.whatIf(job.id, view.keys))],
      ["Compare", (panel) => panel.append(shardwright.comparison(job.id, others))],
    ]);
    const files = el("p", { class: "buttons files" },
      el("a", { class: "button", href: place + "/export/html", download: true }, "Page (.html)"),
      el("a", { class: "button", href: place + "/export/svg", download: true }, "Picture (.svg)"),
      el("a", { class: "button", href: place + "/export/plan", download: true }, "Plan (.json)"));
    return el("div", { class: "answered" }, el("div", { class: "bar-top" }, list, files), note, panels);
  };
})();
