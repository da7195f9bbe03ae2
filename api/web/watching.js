"use strict";
/* A search under way: how far it is, the best plan so far, and a way to end it. */

(function () {
  const { el, percent, seconds } = shardwright;
  const SAY_MS = 5000;

  function figure(name) {
    const value = el("div", { class: "value" }, "–"), note = el("div", { class: "note" }, " ");
    return { box: el("div", { class: "figure" }, el("dt", {}, name), el("dd", {}, value, note)), value, note };
  }

  /* The view of a search: {box, heard(name, data), lost(is)}. */
  function drawing(title, cancel) {
    const step = figure("best step so far"), gap = figure("gap to the bound");
    const plans = figure("plans simulated"), time = figure("searched for");
    const bar = el("progress", { class: "search", max: 1, value: 0, "aria-label": "Shapes looked at" });
    const shape = el("p", { class: "shape" }, "no plan yet");
    const state = el("p", { class: "state" }, "waiting for a worker");
    let said = 0;
    const say = function (text, now) {
      if (!now && Date.now() - said < SAY_MS) return;
      said = Date.now();
      shardwright.say(text);
    };
    const heard = function (name, data) {
      state.textContent = data.attempt > 1 ? "searching, begun anew (" + data.attempt + ")" : "searching";
      plans.value.textContent = String(data.candidates || 0);
      time.value.textContent = seconds(data.seconds || 0);
      if (data.shapes) {
        bar.value = data.shapes_seen / data.shapes;
        plans.note.textContent = data.shapes_seen + " of " + data.shapes + " shapes looked at";
      }
      if (name === "best") {
        step.value.textContent = seconds(data.step_time_s);
        gap.value.textContent = percent(data.gap);
        gap.note.textContent = "no plan is below " + seconds(data.lower_bound_s);
        shape.textContent = data.shape;
        say("best so far: " + seconds(data.step_time_s) + " a step, gap " + percent(data.gap));
      } else say(String(data.candidates || 0) + " plans simulated");
    };
    const lost = function (is) {
      if (!is && !state.classList.contains("over")) return;
      state.classList.toggle("over", is);
      state.textContent = is ? "the service does not answer; trying again" : "searching";
      if (is) say(state.textContent, true);
    };
    const box = el("section", { class: "watch stack" },
      el("header", {}, el("h2", {}, title), state), bar,
      el("dl", { class: "figures card" }, [step, gap, plans, time].map((part) => part.box)),
      el("div", { class: "card" }, el("h3", {}, "Best plan so far"), shape),
      el("p", { class: "buttons" }, el("button", { type: "button", onclick: cancel }, "Cancel the search")));
    return { box, heard, lost };
  }

  /* Watch a job until it has ended, and draw it meanwhile.

     show(box) puts the drawing on the page; signal ends the watching, not the job. */
  shardwright.watchSearch = async function (place, title, show, signal) {
    const cancel = async function (event) {
      event.target.disabled = true;
      event.target.textContent = "Cancelling…";
      try {
        await shardwright.ask(place, "DELETE");
      } catch (error) {
        event.target.textContent = "Cancel the search";
        event.target.disabled = false;
        shardwright.say(error.message);
      }
    };
    const view = drawing(title, cancel);
    show(view.box);
    shardwright.say("searching");
    await shardwright.watch(place, view.heard, view.lost, signal);
  };
})();
