"use strict";
/* What if the cluster or the work were otherwise: sliders, and the plan as it is and planned anew. */

(function () {
  const { el, percent, seconds, number, words, table } = shardwright;
  const FACTORS = [0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4], SIZES = [0.25, 0.5, 1, 2, 4];
  const SETTLE_MS = 400, ROUNDING = 1e-9;
  const NAMES = {
    "intra_pair.bandwidth": "Links of a pair", "intra_node.bandwidth": "Links in a node",
    "inter_node.bandwidth": "Links between nodes", "intra_rack.bandwidth": "Links in a rack",
    "inter_rack.bandwidth": "Links between racks", "inter_zone.bandwidth": "Links between zones",
    "device.flops": "FLOP/s of a device",
    "device.bandwidth": "Bandwidth of its memory", "device.hbm": "Memory of a device",
    "global_batch": "Global batch", "seq_len": "Sequence",
  };
  const UNITS = { bytes: [2 ** 30, "GiB"], bytes_per_s: [1e9, "GB/s"], flops_per_s: [1e12, "TFLOP/s"] };

  const factorText = (factor) => (factor === 1 ? "as it is" : number(factor) + " ×");

  function amount(value, kind) {
    const [scale, unit] = UNITS[kind] || [1, ""];
    return typeof value === "number" ? (number(value / scale) + " " + unit).trim() : value;
  }

  function slider(key, changed) {
    const steps = key.kind === "count" ? SIZES : FACTORS, one = steps.indexOf(1);
    const control = el("input", { type: "range", min: 0, max: steps.length - 1, step: 1, value: one });
    const shown = el("output", {});
    const part = shardwright.field(NAMES[key.path], control);
    const write = function () {
      shown.textContent = factorText(steps[control.value]);
      control.setAttribute("aria-valuetext", shown.textContent);
      part.box.classList.toggle("moved", Number(control.value) !== one);
    };
    control.addEventListener("input", write);
    control.addEventListener("change", changed);
    control.after(shown);
    part.box.classList.add("slider");
    write();
    return { box: part.box, path: key.path, factor: () => steps[control.value],
      reset: () => { control.value = one; write(); } };
  }

  /* The links that this cluster has, each once: inter_node is another name of the level above it. */
  function slidable(keys) {
    const paths = new Set(keys.map((key) => key.path));
    const twice = paths.has("inter_node.bandwidth") ?
      (paths.has("inter_rack.bandwidth") ? null : "intra_rack.bandwidth") : null;
    return keys.filter((key) => key.path in NAMES && key.path !== twice);
  }

  function bars(predictions) {
    const longest = Math.max(...predictions.map(([, found]) => found.step_time_s));
    return predictions.map(([name, found]) => el("div", { class: "bar" }, el("span", {}, name),
      shardwright.strip(Object.entries(found.breakdown_s)
        .filter(([, value]) => value > 0)
        .sort((one, other) => other[1] - one[1])
        .map(([term, value]) => ({ term: term, share: value / longest })))));
  }

  function fitting(row) {
    if (row.prediction.feasible) return el("b", { class: "fits" }, "fits");
    const worst = row.excess[0];
    return el("b", { class: "over" }, "over by " + amount(worst.excess_bytes, "bytes") + " of " +
      worst.tier + " on stage " + worst.stage);
  }

  function moved(term) {
    return term ? words(term.term) + " " + (term.seconds > 0 ? "+" : "−") + seconds(Math.abs(term.seconds)) : "";
  }

  function changes(items) {
    return items.map((item) => item.axis + " " + (item.was ? item.was + "\u00a0→\u00a0" : "") + item.now);
  }

  function decided(row) {
    if (row.kept) return "the same plan: nothing faster was found";
    const parts = changes(row.change);
    const gain = row.gain === null ? "" : percent(Math.abs(row.gain)) +
      (row.gain < 0 ? " slower" : " faster") + " than the same plan: ";
    return gain + parts.join(", ");
  }

  /* Seconds of a term, none where they are what rounding leaves. */
  function termSeconds(prediction, term) {
    const value = prediction.breakdown_s[term] || 0;
    return value > ROUNDING * prediction.step_time_s ? seconds(value) : "–";
  }

  /* MFU; where masked scores matter, also the one that leaves them out. */
  function utilization(prediction) {
    const other = prediction.mfu_causal;
    const apart = other !== undefined && prediction.mfu - other > 0.02;
    return percent(prediction.mfu) + (apart ? " (" + percent(other) + " causal)" : "");
  }

  /* The answer to a question (see what_if_document.py), with the plan as it was beside it. */
  function drawn(found, keys) {
    const kinds = new Map(keys.map((key) => [key.path, key.kind]));
    const rows = [["as it was", found.baseline, ""],
      ["same plan", found.same_plan, [...changes(found.same_plan.change || []),
        ...(found.moved ? ["most moved: " + moved(found.moved)] : [])].join(", ")],
      ["planned anew", found.re_planned, found.re_planned.possible && decided(found.re_planned)]];
    const cells = rows.map(([name, row]) => row.possible === false ?
      [name, "–", "–", "–", "impossible"] :
      [name, seconds(row.prediction.step_time_s), number(row.prediction.tokens_per_s_per_device),
        utilization(row.prediction), fitting(row)]);
    const said = rows.map(([name, row, what]) => [name, row.possible === false ? row.why : what])
      .filter(([, what]) => what);
    const asked = found.changes.map((change) => (NAMES[change.path] || change.path) + " " +
      amount(change.was, kinds.get(change.path)) + " → " + amount(change.now, kinds.get(change.path)));
    const priced = rows.filter(([, row]) => row.possible !== false).map(([name, row]) => [name, row.prediction]);
    const terms = [...new Set(priced.flatMap(([, p]) => Object.keys(p.breakdown_s)))]
      .filter((term) => priced.some(([, p]) => p.breakdown_s[term] > ROUNDING * p.step_time_s));
    const most = (term) => Math.max(...priced.map(([, p]) => p.breakdown_s[term] || 0));
    terms.sort((one, other) => most(other) - most(one));
    const heads = priced.map(([name]) => name);
    return el("div", { class: "stack" }, el("h3", {}, asked.join("; ")),
      el("div", {}, bars(priced)),
      table("The plan in the changed setting", ["plan", "step", "tokens/s a device", "MFU (full attention)", "memory"],
        cells, ["step", "tokens/s a device", "MFU (full attention)"], ["memory"]),
      el("dl", { class: "facts" }, said.flatMap(([name, what]) => [el("dt", {}, name), el("dd", {}, what)])),
      table("Seconds by term", ["term", ...heads], terms.map((term) => [shardwright.swatch(term),
        ...priced.map(([, p]) => termSeconds(p, term))]), heads));
  }

  /* The panel of a plan: keys are those that its view names. */
  shardwright.whatIf = function (planId, keys) {
    const hint = el("p", {}, "Move a slider: the plan is priced as it is, and planned anew.");
    const result = el("div", { class: "card result" }, hint);
    let asking = null, timer = 0;

    async function forget(question) {
      if (!question) return;
      question.gone.abort();
      try {
        if (question.place) await shardwright.ask(question.place, "DELETE");
      } catch (error) {
        // It has ended, or the service is away: nobody waits for it any more.
      }
    }

    async function answer(set) {
      const mine = { gone: new AbortController(), place: null };
      forget(asking);
      asking = mine;
      result.setAttribute("aria-busy", "true");
      shardwright.say("asking");
      try {
        const job = await shardwright.ask("/v1/what-ifs", "POST", { plan_id: planId, set: set });
        mine.place = "/v1/what-ifs/" + job.id;
        if (mine !== asking) return forget(mine);
        await shardwright.watch(mine.place, () => {}, () => {}, mine.gone.signal);
        if (mine !== asking) return;
        const done = await shardwright.ask(mine.place);
        if (mine !== asking) return;
        if (!done.answer) throw new Error(done.problem ? done.problem.detail : "it was cancelled");
        result.replaceChildren(drawn(done.answer, keys));
        shardwright.say("answered: same plan " + (done.answer.same_plan.possible ?
          seconds(done.answer.same_plan.prediction.step_time_s) + " a step" : "impossible"));
      } catch (error) {
        if (mine !== asking) return;
        result.replaceChildren(el("p", { class: "wrong", role: "alert" }, error.message));
      } finally {
        if (mine === asking) result.removeAttribute("aria-busy");
      }
    }

    /* Everything is as it is: no answer stands beside it. */
    function unasked() {
      forget(asking);
      asking = null;
      result.removeAttribute("aria-busy");
      result.replaceChildren(hint);
    }

    const sliders = slidable(keys).map((key) => slider(key, settle));
    function settle() {
      clearTimeout(timer);
      timer = setTimeout(function () {
        const set = {};
        for (const each of sliders) if (each.factor() !== 1) set[each.path] = each.factor() + "x";
        if (Object.keys(set).length) answer(set);
        else unasked();
      }, SETTLE_MS);
    }
    const reset = el("button", { type: "button", onclick: function () {
      clearTimeout(timer);
      for (const each of sliders) each.reset();
      unasked();
    } }, "Set all back");
    return el("div", { class: "what-if" },
      el("div", { class: "card sliders", role: "group", "aria-label": "What if" },
        sliders.map((each) => each.box), reset),
      result);
  };
})();
