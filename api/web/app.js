"use strict";
/* The page: questions at the side, and the job that the address names. */

(function () {
  const { el, ask, say } = shardwright;
  const JOB = /^#([0-9a-f]{32})$/, SIZE = /^#size(?:-([0-9a-f]{32}))?$/;
  const main = document.getElementById("main"), side = document.getElementById("ask");
  let watching = new AbortController();
  const narrow = matchMedia("(max-width: 60rem)");
  let list = null, question = null, forms = {};

  const failed = (error) => el("p", { class: "card wrong", role: "alert" }, error.message);

  function welcome() {
    document.title = "Shardwright";
    main.replaceChildren(el("section", { class: "card welcome" },
      el("h2", {}, "Ask for a plan"),
      el("p", {}, "Pick a model and a cluster. The search weighs ways to split the model, simulates the most ",
        "promising, and says how far the best is from what is provably possible."),
      el("p", { class: "note" }, "Figures for several devices are predictions; each carries the mark of where its ",
        "prices come from.")));
  }

  /* What ended without a report: why, and the best plan that was seen. */
  function ended(job, title) {
    const why = job.problem ? job.problem.detail : "The search was cancelled before its plan was written.";
    const best = job.best && el("p", {}, "Best plan seen: ", el("span", { class: "shape" }, job.best.shape), ", ",
      shardwright.seconds(job.best.step_time_s), " a step");
    return el("section", { class: "card stack" }, el("h2", {}, title),
      el("p", { class: job.state === "failed" ? "wrong" : "", role: "alert" }, why), best);
  }

  async function show(id) {
    watching.abort();
    const mine = watching = new AbortController();
    const current = () => mine === watching;
    list.mark(id);
    const place = "/v1/plans/" + id;
    const known = list.all().find((job) => job.id === id);
    const title = known ? shardwright.jobText(known) : "a plan";
    if (known && known.asked) question.fill(known.asked);
    try {
      let job = await ask(place);
      if (!job.finished_at) {
        await shardwright.watchSearch(place, title, (box) => main.replaceChildren(box), mine.signal);
        if (!current()) return;
        job = await ask(place);
        await list.load();
      }
      if (!current()) return;
      const view = job.answer ? await ask(place + "/view") : null;
      if (!current()) return;
      main.replaceChildren(view ? shardwright.answer(job, view, list.done) : ended(job, title));
      document.title = title + " – Shardwright";
      say(view ? "the plan: " + view.figures[0].value + " a step" : "there is no plan");
    } catch (error) {
      if (current()) main.replaceChildren(failed(error));
    }
  }

  const SIZE_WORDS = ["Size a training", "How many devices a pre-training needs for a date or a budget, or how long " +
    "full fine-tuning, LoRA and QLoRA take on a cluster. Each point has a proven bound."];
  const RUN_WORDS = ["Diagnose a run", "Choose a run's log, or paste its configuration with a measured step: where the step " +
    "goes, from the devices' peak on, and which changes of the configuration would make it shorter."];

  /* One of the other questions: its form at the side, and what it is for. */
  function other(kind, [title, words]) {
    watching.abort();
    watching = new AbortController();
    list.mark("");
    document.title = title + " – Shardwright";
    main.replaceChildren(el("section", { class: "card welcome" }, el("h2", {}, title), el("p", {}, words)));
    pick(kind);
  }

  function pick(kind) {
    for (const [name, parts] of Object.entries(forms)) for (const part of parts) part.hidden = name !== kind;
    const current = { plan: "#", size: "#size", diagnose: "#diagnose" }[kind];
    for (const link of document.querySelectorAll(".asks a")) {
      if (link.getAttribute("href") === current) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }

  async function showSize(id) {
    const mine = watching;
    try {
      await shardwright.showSize(id, main, mine.signal);
    } catch (error) {
      if (mine === watching) main.replaceChildren(failed(error));
    }
  }

  function route() {
    const found = JOB.exec(location.hash), size = SIZE.exec(location.hash);
    side.open = !(((found || (size && size[1])) && narrow.matches)); // a narrow page shows the answer first
    if (size) {
      other("size", SIZE_WORDS);
      if (size[1]) showSize(size[1]);
      return;
    }
    if (location.hash === "#diagnose") {
      other("diagnose", RUN_WORDS);
      return;
    }
    pick("plan");
    if (found) show(found[1]);
    else {
      watching.abort();
      list.mark("");
      welcome();
    }
  }

  const newKey = () => (crypto.randomUUID ? crypto.randomUUID() : String(Math.random()).slice(2));

  async function asked(body) {
    const job = await ask("/v1/plans", "POST", body, { "Idempotency-Key": newKey() });
    await list.load();
    location.hash = job.id;
    main.focus();
  }

  async function askedSize(body) {
    const job = await ask("/v1/sizes", "POST", body, { "Idempotency-Key": newKey(), "Prefer": "respond-async" });
    location.hash = "size-" + job.id;
    main.focus();
  }

  async function askedDiagnosis(body) {
    const mine = watching;
    const found = await ask("/v1/diagnoses", "POST", body);
    if (mine !== watching) return;
    main.replaceChildren(shardwright.diagnosis(found));
    shardwright.say("the run is explained");
    main.focus();
  }

  async function start() {
    try {
      const [models, clusters, choices] =
        await Promise.all([ask("/v1/models"), ask("/v1/clusters"), ask("/v1/choices")]);
      list = shardwright.history();
      await list.load();
      question = shardwright.question(models, clusters, choices, asked);
      forms = { plan: [question.form, list.box], size: [shardwright.sizeForm(models, clusters, askedSize)],
        diagnose: [shardwright.diagnoseForm(models, askedDiagnosis)] };
      side.append(...Object.values(forms).flat());
      addEventListener("hashchange", route);
      narrow.addEventListener("change", () => { side.open = side.open || !narrow.matches; });
      route();
    } catch (error) {
      main.replaceChildren(failed(error));
    }
  }

  document.getElementById("skip").addEventListener("click", function (event) {
    event.preventDefault(); // the address names the job
    main.focus();
  });
  start();
})();
