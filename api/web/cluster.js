"use strict";
/* A form's fields, and those of the cluster: parts to pick, and the text that they make. */

(function () {
  const { el } = shardwright;
  const HERE = "cpu";
  let fields = 0;

  /* A labelled control with a hint below it; what is wrong with it stands there, too. */
  shardwright.field = function (label, control, hint) {
    const id = "field" + ++fields;
    const wrong = el("p", { class: "wrong", id: id + "wrong", hidden: true });
    const below = hint ? el("p", { class: "note", id: id + "hint" }, hint) : null;
    control.id = id;
    control.setAttribute("aria-describedby", (below ? id + "hint " : "") + id + "wrong");
    const box = el("div", { class: "field" }, el("label", { for: id }, label), control, wrong, below);
    const tell = function (text) {
      wrong.textContent = text;
      wrong.hidden = !text;
      if (text) control.setAttribute("aria-invalid", "true");
      else control.removeAttribute("aria-invalid");
    };
    return { box, control, below, tell };
  };

  shardwright.options = function (rows, chosen) {
    return rows.map(([value, text]) =>
      el("option", { value: value, selected: value === chosen }, text === undefined ? value : text));
  };

  /* A text, or the object that a JSON text is. */
  shardwright.textOrObject = function (text, what) {
    const given = text.trim();
    if (!given.startsWith("{")) return given;
    try {
      return JSON.parse(given);
    } catch (error) {
      throw new Error(what + " is no JSON: " + error.message);
    }
  };

  function devices(catalogue) {
    const families = new Map();
    for (const device of catalogue.devices) {
      if (device.name === HERE) continue;
      if (!families.has(device.family)) families.set(device.family, []);
      families.get(device.family).push(device.name);
    }
    return [...families].map(([family, names]) =>
      el("optgroup", { label: family }, shardwright.options(names.map((name) => [name]), "H100-SXM-80GB")));
  }

  /* Fields of a cluster: {box, value(), tell(text)}. */
  shardwright.clusterFields = function (catalogue) {
    const number = (value, most) =>
      el("input", { type: "number", min: 1, max: most, value: value, inputmode: "numeric" });
    const nodes = shardwright.field("Nodes", number(2, 100000));
    const each = shardwright.field("Devices a node", number(8, 1024));
    const device = shardwright.field("Device", el("select", {},
      el("option", { value: HERE }, "this machine (" + catalogue.local.cluster + ")"), devices(catalogue)));
    const networks = catalogue.fabrics.filter((fabric) => fabric.scope === "network");
    const network = shardwright.field("Network", el("select", {}, el("option", { value: "" }, "the usual one (assumed)"),
      shardwright.options(networks.map((fabric) => [fabric.name]))));
    const text = shardwright.field("Cluster, as it is asked for",
      el("textarea", { rows: 1, class: "mono", spellcheck: "false", required: true }),
      "Edit it, join groups with +, or paste a document (JSON).");
    const write = function () {
      const here = device.control.value === HERE;
      const fabric = network.control.value;
      for (const part of [nodes, each, network]) part.control.disabled = here;
      text.control.value = here ? catalogue.local.cluster :
        nodes.control.value + "x" + each.control.value + "x" + device.control.value + (fabric && "@" + fabric);
      text.tell("");
    };
    device.control.addEventListener("change", function () {
      const usual = catalogue.nodes.find((node) => node.usual_for.includes(device.control.value));
      if (usual && device.control.value !== HERE) each.control.value = String(usual.devices_per_node);
    });
    for (const part of [nodes, each, device, network]) part.control.addEventListener("change", write);
    write();
    const box = el("fieldset", {}, el("legend", {}, "Cluster"),
      el("div", { class: "row" }, nodes.box, each.box), device.box, network.box, text.box);
    const fill = function (cluster) {
      if (cluster) text.control.value = cluster;
    };
    return { box, fill, tell: text.tell, control: text.control,
      value: () => shardwright.textOrObject(text.control.value, "the cluster") };
  };
})();
