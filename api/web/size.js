"use strict";
/* How many devices a training needs, or how long fine-tunings take: a form, a curve, a table. */

(function () {
  const { el, field, drawn, options, number, percent, seconds, table } = shardwright;
  const WIDE = 720, HIGH = 260, LEFT = 52, RIGHT = 16, TOP = 14, BOTTOM = 34, DAY_S = 86400;
  const KINDS = [["curve", "devices for a pre-training"], ["ways", "fine-tuning on a cluster"]];
  const text = (value, more) => el("input", { type: "text", value: value, autocomplete: "off", spellcheck: "false", ...more });
  const amount = (value) => el("input", { type: "number", min: 0, step: "any", inputmode: "decimal", value: value });

  const short = (value) => value >= 1e9 ? number(value / 1e9) + " B" : value >= 1e6 ? number(value / 1e6) + " M" :
    value >= 1e5 ? number(value / 1e3) + " k" : number(value);
  const days = (value) => (value === null || value === undefined ? "–" : number(value));
  const cost = (value, currency) => (value === null || value === undefined ? "–" : short(value) + (currency ? " " + currency : ""));

  /* Days by number of devices on logarithmic axes, where perfect scaling is a straight line. */
  function curve(found) {
    const points = found.points.filter((point) => point.days !== null);
    if (!points.length) return el("p", {}, "No number of devices has a plan that fits.");
    const all = points.flatMap((point) => [point.days, point.least_days]);
    const low = 10 ** Math.floor(Math.log10(Math.min(...all))), high = 10 ** Math.ceil(Math.log10(Math.max(...all)));
    const first = points[0].devices, last = points[points.length - 1].devices;
    const x = (count) => LEFT + (Math.log(count / first) / (Math.log(last / first) || 1)) * (WIDE - LEFT - RIGHT);
    const y = (value) => TOP + (Math.log(high / value) / (Math.log(high / low) || 1)) * (HIGH - TOP - BOTTOM);
    const picture = drawn("svg", { viewBox: "0 0 " + WIDE + " " + HIGH, role: "img", class: "curve size-curve",
      "aria-label": "Days by number of devices; the table below has the figures" });
    for (let tick = low; tick <= high * 1.001; tick *= 10) {
      picture.append(drawn("line", { x1: LEFT, x2: WIDE - RIGHT, y1: y(tick), y2: y(tick), class: "grid" }),
        drawn("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, number(tick)));
    }
    for (const point of points) {
      picture.append(drawn("text", { x: x(point.devices), y: HIGH - 18, "text-anchor": "middle" }, String(point.devices)));
    }
    picture.append(drawn("text", { x: LEFT, y: HIGH - 4 }, "devices"), drawn("text", { x: 4, y: TOP - 4 }, "days"));
    const limit = found.within_s / DAY_S;
    if (limit >= low && limit <= high) {
      picture.append(drawn("line", { x1: LEFT, x2: WIDE - RIGHT, y1: y(limit), y2: y(limit), class: "limit" }),
        drawn("text", { x: WIDE - RIGHT, y: y(limit) - 4, "text-anchor": "end" }, "the date"));
    }
    const line = (key) => points.map((point) => x(point.devices).toFixed(1) + "," + y(point[key]).toFixed(1)).join(" ");
    picture.append(drawn("polyline", { points: line("least_days"), class: "least" }),
      drawn("polyline", { points: line("days"), class: "loss" }));
    for (const point of points) {
      const answer = point.devices === found.answer;
      const dot = drawn("circle", { cx: x(point.devices), cy: y(point.days), r: answer ? 6 : 3.5,
        class: answer ? "answer" : point.searched ? "searched" : "usual" });
      dot.append(drawn("title", {}, point.devices + " devices: " + days(point.days) + " days"));
      picture.append(dot);
    }
    return picture;
  }

  function said(found) {
    const answer = found.points.find((point) => point.devices === found.answer);
    if (answer) {
      return el("p", { class: "verdict fits" }, answer.devices + " devices are the smallest number found that meets the limits: " +
        days(answer.days) + " days" + (answer.cost === null ? "" : ", " + cost(answer.cost, found.currency)));
    }
    if (found.within_s === null && found.budget === null) {
      return el("p", { class: "note" }, "With a date or a budget, the points next to it are searched in full.");
    }
    return el("p", { class: "verdict over" }, found.ruled_out ?
      "No plan on these numbers of devices meets the limits: proven." : "No plan that was found meets the limits.");
  }

  function points(found) {
    const priced = found.points.some((point) => point.cost !== null && point.cost !== undefined);
    const heads = ["devices", "days", "at least", ...(priced ? ["cost"] : []), "MFU", "step", "found by", "plan"];
    const rows = found.points.map((point) => [String(point.devices), days(point.days), days(point.least_days),
      ...(priced ? [cost(point.cost, found.currency)] : []),
      point.mfu === null ? "–" : percent(point.mfu), point.step_time_s === null ? "–" : seconds(point.step_time_s),
      !point.feasible ? "–" : point.searched ? "full search" : "usual plans",
      point.shape ? el("span", { class: "shape" }, point.shape) : point.why]);
    return table("Each number of devices, with the fewest days that are provably possible", heads, rows,
      ["devices", "days", "at least", "cost", "MFU", "step"], ["plan"]);
  }

  function curveView(found) {
    return el("article", { class: "stack" },
      el("header", {}, el("h2", {}, found.model + " on " + short(found.tokens) + " tokens, by number of " + found.device)),
      said(found), el("section", { class: "card" }, curve(found),
        el("p", { class: "note" }, "Hollow: the best of the usual uniform plans; filled: searched in full. Dashed: no plan is below. " +
          "Days of steps alone, without failures, evaluations and checkpoints.")),
      el("section", { class: "card" }, points(found)));
  }

  function waysView(found) {
    const rows = found.ways.map((way) => [way.name, way.hours === null ? "–" : number(way.hours), cost(way.cost),
      way.mfu ? percent(way.mfu) : "–", way.shape ? el("span", { class: "shape" }, way.shape) : way.why]);
    const priced = found.ways.some((way) => way.cost !== null && way.cost !== undefined);
    const kept = (row) => row.filter((_, n) => priced || n !== 2);
    return el("article", { class: "stack" },
      el("header", {}, el("h2", {}, found.model + " fine-tuned on " + short(found.tokens) + " tokens"),
        el("p", { class: "cluster" }, "on " + found.cluster)),
      el("section", { class: "card" }, table("Ways to fine-tune, side by side", kept(["way", "hours", "cost", "MFU", "plan"]),
        rows.map(kept), ["hours", "cost", "MFU"], ["plan"])));
  }

  const view = (found) => (found.ways ? waysView(found) : curveView(found));

  /* Show a size's job in a place until it has ended, its first table meanwhile. */
  shardwright.showSize = async function (id, main, signal) {
    const place = "/v1/sizes/" + id;
    let job = await shardwright.ask(place);
    if (!job.finished_at) {
      const state = el("p", { class: "state" }, "pricing the usual plans of each number of devices…");
      const first = el("div");
      const cancel = el("button", { type: "button", onclick: () => shardwright.ask(place, "DELETE") }, "Cancel");
      if (!signal.aborted) main.replaceChildren(el("section", { class: "watch stack" }, state, first, el("p", { class: "buttons" }, cancel)));
      const heard = function (name, data) {
        if (name !== "curve") return;
        state.textContent = "searching the points next to the limits…";
        shardwright.say(state.textContent);
        const table = { points: data.points, within_s: null, answer: null };
        first.replaceChildren(el("section", { class: "card" }, curve(table), points(table)));
      };
      await shardwright.watch(place, heard, () => {}, signal);
      if (signal.aborted) return;
      job = await shardwright.ask(place);
    }
    if (signal.aborted) return;
    const why = job.problem ? job.problem.detail : "It was cancelled.";
    main.replaceChildren(job.answer ? view(job.answer) : el("p", { class: "card wrong", role: "alert" }, why));
    shardwright.say(job.answer ? "the size is found" : why);
  };

  /* The form: asked(body) posts a question and may throw what the service says. */
  shardwright.sizeForm = function (models, clusters, asked) {
    const devices = clusters.devices.filter((device) => device.name !== "cpu").map((device) => [device.name]);
    const kind = field("Question", el("select", {}, options(KINDS, "curve")));
    const fields = {
      "/model": shardwright.modelFields(models),
      "/tokens": field("Tokens", text("2T"), "such as 300B or 2T; of an epoch, for fine-tuning"),
      "/device": field("Device", el("select", {}, options(devices, "H100-SXM-80GB"))),
      "/cluster": field("Cluster", text("8xH100-80GB", { class: "mono" })),
      "/epochs": field("Epochs", amount(3)),
      "/within": field("Days it may take", amount(""), "empty for any"),
      "/prices": field("Price of a device-hour", amount(""), "in USD; empty for no costs"),
      "/budget": field("Budget", amount(""), "in USD, with a price"),
      "/workload/seq_len": field("Sequence", amount(""), "tokens a sample; empty: a usual length"),
    };
    const filled = (pointer) => (fields[pointer].control.value === "" ? undefined : Number(fields[pointer].control.value));
    const isCurve = () => kind.control.value === "curve";
    const fit = function () {
      for (const pointer of ["/device", "/within", "/budget"]) fields[pointer].box.hidden = !isCurve();
      for (const pointer of ["/cluster", "/epochs"]) fields[pointer].box.hidden = isCurve();
      fields["/tokens"].control.value = isCurve() ? "2T" : "100M";
    };
    kind.control.addEventListener("change", fit);
    fit();
    const body = function () {
      const device = fields["/device"].control.value, cluster = fields["/cluster"].control.value;
      const price = filled("/prices"), seq = filled("/workload/seq_len");
      const priced = isCurve() ? device : /x([A-Za-z][\w-]*)/.exec(cluster);
      const named = typeof priced === "string" ? priced : priced && priced[1];
      return { model: fields["/model"].value(), tokens: fields["/tokens"].control.value,
        device: isCurve() ? device : undefined, cluster: isCurve() ? undefined : cluster,
        epochs: isCurve() ? undefined : filled("/epochs"),
        within: isCurve() ? filled("/within") : undefined, budget: isCurve() ? filled("/budget") : undefined,
        prices: price === undefined ? undefined : { currency: "USD", device_hour: { [named]: price } },
        workload: seq === undefined ? undefined : { seq_len: seq } };
    };
    const at = (pointer) => fields[pointer].box;
    const parts = [at("/model"), el("fieldset", {}, el("legend", {}, "Training"), kind.box, at("/tokens"),
      at("/device"), at("/cluster"), at("/epochs"), at("/workload/seq_len")),
    el("fieldset", {}, el("legend", {}, "Limits"), at("/within"), at("/prices"), at("/budget"))];
    return shardwright.askForm(fields, parts, "Size the training", body, asked);
  };
})();
