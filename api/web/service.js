"use strict";
/* Requests to the service that the page came from, and a job's events over lost connections. */

(function () {
  const AGAIN_MS = 1000;

  class Refused extends Error {
    constructor(status, problem) {
      super(problem.detail || problem.title || "the service answered " + status);
      this.status = status;
      this.errors = problem.errors || [];
    }
  }
  shardwright.Refused = Refused;

  async function refused(answer) {
    let problem = {};
    try {
      problem = await answer.json();
    } catch (error) {
      // No problem document: the status says it all.
    }
    return new Refused(answer.status, problem);
  }

  /* The document at a path; with a method and a body, what the service makes of it. */
  shardwright.ask = async function (path, method, body, headers) {
    const options = { method: method || "GET", headers: { ...(headers || {}) } };
    if (body !== undefined) {
      options.headers["Content-Type"] = "application/json";
      options.body = JSON.stringify(body);
    }
    const answer = await fetch(path, options);
    if (!answer.ok) throw await refused(answer);
    return answer.status === 204 ? null : answer.json();
  };

  /* Server-sent events of a stream, one after another. */
  async function* events(stream) {
    const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += value.replace(/\r/g, "");
      let end;
      while ((end = text.indexOf("\n\n")) >= 0) {
        const event = { name: "", id: "", data: "" };
        for (const line of text.slice(0, end).split("\n")) {
          if (line.startsWith("event: ")) event.name = line.slice(7);
          if (line.startsWith("id: ")) event.id = line.slice(4);
          if (line.startsWith("data: ")) event.data += line.slice(6);
        }
        text = text.slice(end + 2);
        if (event.name) yield event;
      }
    }
  }

  const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

  /* Hear every event of a job once, until it has ended; a lost connection is made again.

     heard(name, data) takes events; lost(is) learns whether the service answers. An EventSource
     would give up at the first answer that is an error, such as that of a service that is ending. */
  shardwright.watch = async function (place, heard, lost, signal) {
    let last = "";
    while (!signal.aborted) {
      try {
        const headers = last === "" ? {} : { "Last-Event-ID": last };
        const answer = await fetch(place + "/events", { headers, signal });
        if (answer.status === 204) return;
        if (!answer.ok) throw await refused(answer);
        lost(false);
        for await (const event of events(answer.body)) {
          last = event.id;
          if (event.name === "done") return;
          heard(event.name, JSON.parse(event.data));
        }
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refused && error.status < 500 && error.status !== 429) throw error;
      }
      lost(true);
      await sleep(AGAIN_MS);
    }
  };

  /* Say something to who does not see the page; the same words twice are said once. */
  shardwright.say = function (text) {
    const place = document.getElementById("said");
    if (place.textContent !== text) place.textContent = text;
  };
})();
