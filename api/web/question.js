"use strict";
/* The question: a model, a cluster, what is trained and what is wanted. */

(function () {
  const { el, field, options } = shardwright;
  const OWN = "", START = "llama-3-8b";
  const OWN_MODEL = '{"layers": 24, "hidden": 2048, "heads": 16, "vocab": 50304}';
  const PRICES = '{"currency": "USD", "device_hour": {"H100-SXM-80GB": 2.5}}';
  const OBJECTIVES = [["throughput", "most tokens a second"], ["cost", "least cost a token"],
    ["largest-batch", "largest batch that fits"], ["largest-sequence", "longest sequence that fits"]];
  const USUAL = { dtype: "as usual", optimizer: "as usual", prefer: "as usual",
    framework: "none",
    recompute: "what the search finds" };
  const MEANINGS = { "prefer simple": "the simplest that is as good", "prefer best": "the fastest",
    "recompute selective": "selective: core attention", "recompute selective-ops": "selective, by operation" };

  function about(model) {
    const billions = (count) => shardwright.number(count / 1e9) + " B";
    const active = model.active_parameters === model.parameters ? "" :
      ", " + billions(model.active_parameters) + " active";
    return billions(model.parameters) + " parameters" + active + "; " + model.layers + " layers, " +
      model.hidden + " wide";
  }

  shardwright.modelFields = function (models) {
    const known = new Map(models.models.map((model) => [model.name, model]));
    const pick = field("Model", el("select", {},
      options([...known.keys()].map((name) => [name]), START),
      el("option", { value: OWN }, "a document of mine…")), " ");
    const own = field("Model document", el("textarea", { rows: 6, class: "mono", spellcheck: "false" }),
      "The content of a config.json, or typed keys (JSON).");
    own.control.value = OWN_MODEL;
    const write = function () {
      own.box.hidden = pick.control.value !== OWN;
      pick.below.textContent = own.box.hidden ? about(known.get(pick.control.value)) : "";
    };
    pick.control.addEventListener("change", write);
    write();
    const shown = () => (own.box.hidden ? pick : own);
    return {
      box: el("fieldset", {}, el("legend", { class: "unseen" }, "Model"), pick.box, own.box),
      value: () => own.box.hidden ? pick.control.value :
        shardwright.textOrObject(own.control.value, "the model"),
      fill: function (name) {
        if (!known.has(name)) return;
        pick.control.value = name;
        write();
      },
      tell: (text) => shown().tell(text),
      get control() { return shown().control; },
    };
  };

  function whole(value, more) {
    return el("input", { type: "number", min: 1, step: 1, inputmode: "numeric", value: value, ...more });
  }

  /* A choice among words of the service, the first of which leaves it open. */
  function choice(label, kind, words, hint) {
    const rows = words.map((word) => [word, MEANINGS[kind + " " + word] || word]);
    return field(label, el("select", {}, options([["", USUAL[kind]], ...rows], "")), hint);
  }

  /* A text, with words of the service to pick from. */
  function suggested(label, words, hint) {
    const list = el("datalist", { id: "words" + label.replace(/\W/g, "") },
      words.map((word) => el("option", { value: word })));
    const part = field(label, el("input", { type: "text", class: "mono", spellcheck: "false",
      autocomplete: "off", list: list.id }), hint);
    part.box.append(list);
    return part;
  }

  const amount = (label, hint) => field(label,
    el("input", { type: "number", min: 0.1, step: "any", inputmode: "decimal" }), hint);

  /* The fields by the pointers that problems name them by. */
  function fieldsOf(models, clusters, choices) {
    return {
      "/model": shardwright.modelFields(models),
      "/cluster": shardwright.clusterFields(clusters),
      "/workload/global_batch": field("Global batch", whole(128), "samples a step"),
      "/workload/seq_len": field("Sequence", whole(8192), "tokens a sample"),
      "/workload/dtype": choice("Number format", "dtype", choices.dtype),
      "/workload/optimizer": choice("Optimizer", "optimizer", choices.optimizer),
      "/workload/trainable": suggested("What is trained", choices.trainable, "empty: everything"),
      "/objective": field("Objective", el("select", {}, options(OBJECTIVES, "throughput"))),
      "/prices": field("Prices (JSON)", el("textarea", { rows: 3, class: "mono", spellcheck: "false" })),
      "/prefer": choice("Answer with", "prefer", choices.prefer),
      "/stack": suggested("Training software", choices.stack,
        "empty: our own; settings follow, as in megatron:dispatcher=deepep"),
      "/constraints/framework": choice("Keep to what a framework says", "framework", choices.framework),
      "/constraints/memory_gib": amount("Memory a device may use", "GiB; empty for all of it"),
      "/constraints/host_gib": amount("Host memory a device may use", "GiB, for offloading; empty for none"),
      "/constraints/nvme_gib": amount("Room on drives a device may use", "GiB, for offloading; empty for none"),
      "recompute": choice("Recomputation", "recompute", choices.recompute),
      "/constraints/pins": field("Pins", el("input", { type: "text", class: "mono", spellcheck: "false" }),
        "decisions that are fixed, such as tp=8, pp=2"),
      "/deadline_s": field("Seconds to search", el("input",
        { type: "number", min: 0.1, max: 600, step: "any", value: 60, inputmode: "decimal" })),
    };
  }

  const number = (part) => (part.control.value === "" ? undefined : Number(part.control.value));
  const word = (part) => part.control.value || undefined;

  /* What stands between two pins: a value may hold commas itself. */
  const BETWEEN_PINS = /[\s,]+(?=[A-Za-z_-]+(?:@[\d-]+)?=)/;

  function pinsOf(fields) {
    const typed = fields["/constraints/pins"].control.value.replace(/^[\s,]+|[\s,]+$/g, "");
    const pins = typed ? typed.split(BETWEEN_PINS) : [];
    const recompute = word(fields.recompute);
    if (recompute) pins.push("recompute=" + recompute);
    return pins.length ? pins : undefined;
  }

  function bodyOf(fields) {
    const objective = fields["/objective"].control.value;
    const limits = { memory_gib: number(fields["/constraints/memory_gib"]),
      host_gib: number(fields["/constraints/host_gib"]),
      nvme_gib: number(fields["/constraints/nvme_gib"]), pins: pinsOf(fields),
      framework: word(fields["/constraints/framework"]) };
    const limited = Object.values(limits).some((limit) => limit !== undefined);
    return {
      model: fields["/model"].value(),
      cluster: fields["/cluster"].value(),
      workload: {
        global_batch: objective === "largest-batch" ? undefined : number(fields["/workload/global_batch"]),
        seq_len: objective === "largest-sequence" ? undefined : number(fields["/workload/seq_len"]),
        dtype: word(fields["/workload/dtype"]),
        optimizer: word(fields["/workload/optimizer"]),
        trainable: word(fields["/workload/trainable"]),
      },
      objective: objective,
      prices: objective === "cost" ?
        shardwright.textOrObject(fields["/prices"].control.value, "the prices") : undefined,
      prefer: word(fields["/prefer"]),
      stack: word(fields["/stack"]),
      constraints: limited ? limits : undefined,
      deadline_s: number(fields["/deadline_s"]),
    };
  }

  /* Show each fault at its field; the first one gets the focus. */
  function tellFaults(fields, error, general) {
    const left = [];
    let first = null;
    for (const fault of error.errors || []) {
      const place = Object.keys(fields).find((pointer) =>
        fault.pointer === pointer || fault.pointer.startsWith(pointer + "/"));
      if (!place) left.push((fault.pointer + ": " + fault.msg).replace(/^: /, ""));
      else {
        fields[place].tell(fault.msg);
        first = first || fields[place];
      }
    }
    if (!first && !left.length) left.push(error.message);
    general.textContent = left.join("; ");
    general.hidden = !left.length;
    if (first) {
      const folded = first.control.closest("details");
      if (folded) folded.open = true;
      first.control.focus();
    }
  }

  /* A form of fields by pointer: asked(body()) may throw what the service says of them. */
  shardwright.askForm = function (fields, parts, label, body, asked) {
    const general = el("p", { class: "wrong", role: "alert", hidden: true });
    const button = el("button", { type: "submit", class: "primary" }, label);
    const form = el("form", { class: "card question", novalidate: true }, parts, general, button);
    form.addEventListener("submit", async function (event) {
      event.preventDefault();
      for (const part of Object.values(fields)) part.tell("");
      general.hidden = true;
      button.disabled = true;
      try {
        await asked(body());
      } catch (error) {
        tellFaults(fields, error, general);
      } finally {
        button.disabled = false;
      }
    });
    return form;
  };

  /* Put in what an earlier job was asked, where that is short. */
  function fill(fields, asked) {
    fields["/model"].fill(asked.model);
    fields["/cluster"].fill(asked.cluster);
    for (const name of ["global_batch", "seq_len"]) {
      if (asked[name]) fields["/workload/" + name].control.value = String(asked[name]);
    }
    const put = (pointer, value) => { fields[pointer].control.value = value || ""; };
    for (const name of ["dtype", "optimizer", "trainable"]) put("/workload/" + name, asked[name]);
    for (const name of ["memory_gib", "host_gib", "nvme_gib", "framework"]) put("/constraints/" + name, asked[name]);
    for (const name of ["prefer", "stack"]) put("/" + name, asked[name]);
    const recompute = (asked.pins || []).filter((pin) => pin.startsWith("recompute="));
    const one = recompute.length === 1 ? recompute[0].slice("recompute=".length) : "";
    put("recompute", one);
    const picked = one && fields.recompute.control.value === one;
    put("/constraints/pins", (asked.pins || []).filter((pin) => !picked || pin !== recompute[0]).join(", "));
    if (asked.objective) {
      fields["/objective"].control.value = asked.objective;
      fields["/objective"].control.dispatchEvent(new Event("change"));
    }
  }

  /* The form, and fill(asked); asked(body) posts a question and may throw what the service says. */
  shardwright.question = function (models, clusters, choices, asked) {
    const fields = fieldsOf(models, clusters, choices);
    const at = (pointer) => fields[pointer].box;
    const wanted = fields["/objective"].control;
    fields["/prices"].control.value = PRICES;
    const fit = function () {
      at("/prices").hidden = wanted.value !== "cost";
      fields["/workload/global_batch"].control.disabled = wanted.value === "largest-batch";
      fields["/workload/seq_len"].control.disabled = wanted.value === "largest-sequence";
    };
    wanted.addEventListener("change", fit);
    fit();
    const form = shardwright.askForm(fields, [
      at("/model"), at("/cluster"),
      el("fieldset", {}, el("legend", {}, "Training"),
        el("div", { class: "row" }, at("/workload/global_batch"), at("/workload/seq_len")),
        el("div", { class: "row" }, at("/workload/dtype"), at("/workload/optimizer")),
        at("/workload/trainable"), at("/objective"), at("/prices")),
      el("details", {}, el("summary", {}, "More"), at("/stack"), at("/prefer"),
        at("/constraints/framework"),
        el("div", { class: "row" }, at("/constraints/memory_gib"), at("/constraints/host_gib")),
        at("/constraints/nvme_gib"),
        at("recompute"), at("/constraints/pins"), at("/deadline_s"))],
    "Find the plan", () => bodyOf(fields), asked);
    return { form, fill: (asked) => fill(fields, asked) };
  };
})();
