// lib/demo/live.py's part of trace.html: asks for a text, and draws each round when it comes.

const asking = element("form", {id: "form"});
const known = Object.keys(run.live.decoders);

function field(label, made) {
  return element("label", {}, `${label} `, made);
}

function numberField(name, value, min, max, step) {
  return element("input", {name, type: "number", value, min, ...(max ? {max} : {}), step,
    style: "width: 6rem"});
}

const promptBox = element("textarea", {name: "prompt", rows: "3", required: "",
  style: "display: block; width: 100%; font: inherit"});
promptBox.value = "There was once a young prince who was afraid of the dark, and so";
const decoders = element("select", {name: "decoder"},
  ...known.map(name => element("option", {}, name)));
decoders.value = "speculative" in run.live.decoders ? "speculative" : known[0];
const K = numberField("K", 4, 1, 64, 1), temperature = numberField("temperature", 1, 0, "", "any");
const start = element("button", {id: "start"}, "Write");
const stop = element("button", {id: "stop", type: "button", disabled: ""}, "Stop");
const state = element("p", {id: "state", role: "status"});
asking.append(element("label", {style: "display: block; margin-right: 0"}, "Prompt ", promptBox),
  field("Decoder", decoders), field("K", K), field("Temperature", temperature),
  field("Seed", numberField("seed", 123, 0, "", 1)),
  field("New tokens", numberField("N", 60, 1, run.live.max_new, 1)),
  field("Plain decoding too, for a race", element("input", {name: "race", type: "checkbox"})),
  element("p", {}, start, stop), state);
at("ask").append(asking);

function fit() {  // what this decoder has no use for is not asked
  const {has_K, greedy} = run.live.decoders[decoders.value];
  K.disabled = !has_K;
  temperature.disabled = greedy;
}

function asked() {
  const form = new FormData(asking), number = name => Number(form.get(name));
  const greedy = temperature.disabled ? {temperature: 0} : {temperature: number("temperature")};
  return {prompt: form.get("prompt"), decoder: form.get("decoder"), ...greedy,
    ...(K.disabled ? {} : {K: number("K")}), seed: number("seed"), N: number("N"),
    race: form.has("race")};
}

// The lines of an answer, as they come.
async function* linesOf(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const lines = (rest + part.value).split("\n");
    rest = lines.pop();
    yield* lines.map(line => JSON.parse(line));
  }
}

function hear(message) {
  if (message.round) {
    run.rounds.push(message.round);
    addRound(message.round, run.rounds.length - 1);
    state.textContent = `Round ${run.rounds.length}`;
  } else if (message.plain) {
    state.textContent = "Plain decoding, for the race";
  } else if (message.error) {
    throw new Error(message.error);
  } else if (message.run) {
    Object.assign(run, message.run);
    drawFigures();
  }
  return Boolean(message.run);
}

let leaving = null;
async function write() {
  const body = asked();
  leaving = new AbortController();
  Object.assign(run, {prompt: body.prompt, rounds: [], settings: {}, plain: undefined,
    code: undefined, summary: {ids: 0, rounds: 0, by_place: [], by_clock: {}}});
  drawRun();
  const answer = await fetch("/decode", {method: "POST", body: JSON.stringify(body),
    headers: {"Content-Type": "application/json"}, signal: leaving.signal});
  if (!answer.ok) throw new Error(await answer.text());
  let whole = false;
  for await (const message of linesOf(answer)) whole = hear(message);
  if (!whole) throw new Error("The answer was cut off.");
}

asking.addEventListener("submit", async event => {
  event.preventDefault();
  if (!stop.disabled) return;
  [start.disabled, stop.disabled, state.textContent] = [true, false, "Waiting for a turn"];
  try {
    await write();
    state.textContent = "Done";
  } catch (error) {
    state.textContent = error.name === "AbortError" ? "Stopped" : error.message;
  }
  [start.disabled, stop.disabled] = [false, true];
});
stop.addEventListener("click", () => leaving.abort());
decoders.addEventListener("change", fit);
fit();
