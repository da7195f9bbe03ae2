"use strict";
/* Where a measured step goes, and what would make it shorter: a log or a configuration, a waterfall. */

(function () {
  const { el, field, options, percent, seconds, table, words } = shardwright;
  const MOST_BYTES = 1000000, SMALL = 0.001, MOST_CHANGES = 6;
  const KINDS = [["run.log", "a training log"], ["config.yaml", "YAML"], ["config.toml", "TOML"], ["config.json", "JSON, or a plan"],
    ["train.args", "a command line's flags"]];

  /* Bars below a thousandth of the step as one; the peak and what is unexplained always stand alone. */
  function shownBars(bars) {
    const large = (bar) => Math.abs(bar.share) >= SMALL || ["at_peak", "unexplained"].includes(bar.term);
    const rest = bars.filter((bar) => !large(bar));
    if (!rest.length) return bars;
    const sum = (key) => rest.reduce((total, bar) => total + bar[key], 0);
    return [...bars.filter(large), { term: "the_rest", seconds: sum("seconds"), share: sum("share"),
      meaning: "terms below a thousandth of the step" }];
  }

  function barClass(bar) {
    if (bar.term === "at_peak" || bar.seconds < 0) return "piece peak";
    return bar.term === "unexplained" ? "piece unexplained" : "piece " + shardwright.termClass(bar.term);
  }

  /* Each bar begins where the one before it ended, so that the last end is the measured step. */
  function waterfall(found) {
    const bars = shownBars(found.bars);
    let end = 0;
    const ends = bars.map((bar) => [end, (end += bar.seconds)]);
    const widest = Math.max(found.measured_s, ...ends.flat());
    const row = function (name, kind, from, to, text, meaning) {
      const piece = el("span", { class: kind });
      piece.style.marginLeft = (100 * Math.min(from, to)) / widest + "%";
      piece.style.width = (100 * Math.abs(to - from)) / widest + "%";
      return el("li", {}, el("span", { class: "term" }, name), el("span", { class: "track", "aria-hidden": "true" }, piece),
        el("span", { class: "figure-text" }, text), el("span", { class: "note" }, meaning));
    };
    const text = (bar) => (bar.seconds < 0 ? "−" : "") + seconds(Math.abs(bar.seconds)) + ", " + percent(bar.share);
    return el("ol", { class: "waterfall" },
      bars.map((bar, n) => row(words(bar.term), barClass(bar), ends[n][0], ends[n][1], text(bar), bar.meaning)),
      row("measured step", "piece whole", 0, found.measured_s, seconds(found.measured_s) + ", 100 %", "the sum"));
  }

  function changes(found) {
    if (found.why_none) return el("p", {}, "No changes are ranked: " + found.why_none);
    const rows = [...found.alone.slice(0, MOST_CHANGES), ...(found.together ? [found.together] : [])].map((change) => [
      (change === found.together ? "together: " : "") +
        change.changes.map((one) => one.axis + " " + one.was + " → " + one.now).join(", "),
      "+" + percent(change.gain), seconds(change.step_time_s), percent(change.mfu),
      shardwright.number(change.memory_bytes / 2 ** 30) + " GiB",
      change.checkpoint_conversion ? "must be converted" : "loads as it is"]);
    if (!rows.length) return el("p", {}, "No change of one axis gains (" + found.priced + " plans simulated).");
    const best = found.together || found.alone[0];
    return [table("Changes by gain, each simulated; the same mathematics", ["change", "gain", "step", "MFU", "memory", "checkpoint"],
      rows, ["gain", "step", "MFU", "memory"], ["change"]),
    best.flags.length ? el("h3", {}, "Write, for " + (found.together ? "all together" : "the first")) : "",
    el("ul", { class: "mono" }, best.flags.map((flag) => el("li", {}, flag.key + " " + flag.was + " → " + flag.now))),
    best.checkpoint_conversion ? el("p", {}, "Its checkpoint must be converted: " + best.checkpoint_conversion + ".") : ""];
  }

  function figures(found) {
    const bars = found.waterfall, noise = found.noise;
    const rows = [
      { name: "measured step", value: seconds(bars.measured_s), note: "simulated " + seconds(bars.predicted_s) },
      { name: "MFU", value: percent(bars.mfu), note: percent(bars.mfu_full_attention) + " with masked scores" },
      { name: "explained", value: Math.round(100 * Math.max(0, bars.explained)) + " %", note: "of the loss, by the configuration" },
      ...(noise ? [{ name: "median step", value: seconds(noise.p50_s),
        note: "p99 " + seconds(noise.p99_s) + ", " + noise.slow.length + " slow of " + noise.steps }] : [])];
    return shardwright.figures(rows);
  }

  shardwright.diagnosis = function (found) {
    return el("article", { class: "stack" },
      el("header", {}, el("h2", {}, "Where the step of " + found.source + " goes"),
        el("p", { class: "cluster" }, "read as " + (found.log ? "a log of " + found.log : found.framework || "a plan"))),
      found.explains ? "" : el("p", { class: "verdict over" }, "The configuration explains less than half of the loss: what follows rests on a part of the step."),
      figures(found),
      el("section", { class: "card" }, el("h3", {}, "From the devices' peak to the measured step"), waterfall(found.waterfall)),
      found.measure_next.length ? el("section", { class: "card" }, el("h3", {}, "Measure next"),
        el("ul", {}, found.measure_next.map((line) => el("li", {}, line)))) : "",
      el("section", { class: "card" }, el("h3", {}, "What would make it shorter"), changes(found.changes)),
      found.ignored.length ? el("p", { class: "note" }, "Keys that change nothing known here: " + found.ignored.join(", ")) : "");
  };

  /* A text to paste, or a file to choose, which is put there: {box, value(), tell(text), control}. */
  function textField() {
    const file = field("Choose a file", el("input", { type: "file" }), "or paste its text");
    const kind = field("It is", el("select", {}, options(KINDS, "run.log")));
    const text = field("Log, configuration or plan", el("textarea", { rows: 8, class: "mono", spellcheck: "false" }),
      "Only this text is read: files that it names are not.");
    let name = "";
    file.control.addEventListener("change", async function () {
      const chosen = file.control.files[0];
      if (!chosen) return;
      const large = chosen.size > MOST_BYTES;
      text.tell(large ? "allowed: a file of at most 1 MB; plan diagnose reads larger ones" : "");
      if (large) return;
      name = chosen.name.replace(/[^A-Za-z0-9_. +-]/g, "_").slice(-100).replace(/^[^A-Za-z0-9_]+/, "");
      text.control.value = await chosen.text();
      kind.box.hidden = true;
    });
    text.control.addEventListener("input", function () {
      name = "";
      kind.box.hidden = false;
    });
    return { box: el("fieldset", {}, el("legend", { class: "unseen" }, "Run"), file.box, text.box, kind.box), tell: text.tell, control: text.control,
      value: () => ({ name: name || kind.control.value, text: text.control.value }) };
  }

  /* The form: asked(body) posts a question and may throw what the service says. */
  shardwright.diagnoseForm = function (models, asked) {
    const input = (kind, more) => el("input", { type: kind, autocomplete: "off", spellcheck: "false", ...more });
    const amount = () => input("number", { min: 0, step: "any", inputmode: "decimal" });
    const list = el("datalist", { id: "presets" }, models.models.map((model) => el("option", { value: model.name })));
    const fields = {
      "/file": textField(),
      "/cluster": field("Cluster", input("text", { class: "mono", value: "8xH100-80GB" }), "the machines that it ran on; empty for a plan"),
      "/measured_step_s": field("Measured step", amount(), "seconds; empty: as the log says"),
      "/tokens_per_s": field("or tokens a second", amount(), "of all devices"),
      "/model": field("Model", input("text", { class: "mono", list: "presets" }), "empty: as the file says"),
      "/workload/seq_len": field("Sequence", amount(), "empty: as the file says"),
      "/workload/global_batch": field("Global batch", amount(), "empty: as the file says"),
    };
    const filled = (pointer) => (fields[pointer].control.value === "" ? undefined : Number(fields[pointer].control.value));
    const body = function () {
      const work = { seq_len: filled("/workload/seq_len"), global_batch: filled("/workload/global_batch") };
      return { file: fields["/file"].value(), cluster: fields["/cluster"].control.value || undefined,
        model: fields["/model"].control.value || undefined, measured_step_s: filled("/measured_step_s"),
        tokens_per_s: filled("/tokens_per_s"),
        workload: Object.values(work).some((value) => value !== undefined) ? work : undefined };
    };
    const at = (pointer) => fields[pointer].box;
    const parts = [at("/file"), el("fieldset", {}, el("legend", {}, "Measured"), at("/cluster"),
      el("div", { class: "row" }, at("/measured_step_s"), at("/tokens_per_s"))),
    el("fieldset", {}, el("legend", {}, "What the file leaves out"), at("/model"), list,
      el("div", { class: "row" }, at("/workload/seq_len"), at("/workload/global_batch")))];
    return shardwright.askForm(fields, parts, "Explain the run", body, asked);
  };
})();
