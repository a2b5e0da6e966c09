// ---- the code of a round, one line after another, with the round's numbers in it

// The recorded numbers of a round: us[t] tests guess t, the last of them draws the last token.
// A number that the run did not draw is .5.
const recordedDraws = round =>
  [...round.guesses.map(guess => guess.u_accept), round.u_last].map(u => u ?? .5);

// A row as its three largest probabilities: the entries of `top` by one of their names.
function shortRow(row, name) {
  const largest = topOf(row).filter(each => each[name] > 0)
    .sort((a, b) => b[name] - a[name]).slice(0, 3);
  const kind = name === "draft" ? "draft" : "target";
  const lines = largest.map(each => element("li", {}, bar(each[name], kind),
    number(each[name]), " ", shownText(each.text)));
  return element("ul", {class: "short-row"}, ...lines);
}

const tokenList = texts => element("code", {}, `[${texts.map(quoted).join(", ")}]`);

// The end of the text that a round continues.
function textBefore(round) {
  const before = run.rounds.slice(0, run.rounds.indexOf(round));
  const texts = before.flatMap(each => each.ids.map(token => token.text));
  const text = run.prompt + texts.join("");
  return text.length > 40 ? `…${text.slice(-40)}` : text;
}

// The lines that run in a round whose test draws `us`, in their order. Each entry of `values` is
// [name, value, is it written by this line?].
function codeSteps(round, us) {
  const steps = [];
  const add = (place, ...values) => steps.push({place, values});
  const reads = (name, value) => [name, value, false];
  const writes = (name, value) => [name, value, true];
  const texts = round.guesses.map(guess => guess.text);
  const k = texts.length;
  const x = shownText(textBefore(round));
  function rowsOf(name) {
    const nRows = name === "draft" ? k : k + 1;
    return round.rows.slice(0, nRows)
      .map((row, t) => writes(`p_${name}[${t}]`, shortRow(row, name)));
  }

  const settings = [reads("x", x)];
  if (round.n_left !== undefined) settings.push(reads("n_left", String(round.n_left)));
  if (typeof run.settings.K === "number") settings.push(reads("K", String(run.settings.K)));
  add("speculative_step.def", ...settings);
  // The line of the guess is shown twice: when it calls `guess`, and when `guess` has returned.
  add("speculative_step.guess", reads("k", String(k)));
  if (run.is_chain) addGuess();
  add("speculative_step.guess", writes("guesses", tokenList(texts)), ...rowsOf("draft"));
  add("speculative_step.score", reads("x + guesses", shownText(textBefore(round) +
    texts.join(""))), ...rowsOf("target"));
  add("speculative_step.test", reads("guesses", tokenList(texts)));
  const ids = addTest();
  add("speculative_step.test", writes("ids", tokenList(ids)));
  add("speculative_step.end", reads("ids", tokenList(ids)));
  return steps;

  function addGuess() {
    add("guess.def", reads("x", x), reads("k", String(k)));
    add("guess.start", writes("guesses", tokenList([])), writes("p_draft", "[]"));
    round.guesses.forEach((guess, t) => {
      add("guess.loop", reads("_", String(t)));
      add("guess.row", reads("x + guesses", shownText(textBefore(round) +
        texts.slice(0, t).join(""))),
        writes(`p_draft[${t}]`, shortRow(round.rows[t], "draft")));
      const drawn = [reads(`p_draft[${t}]`, shortRow(round.rows[t], "draft"))];
      if (guess.u_draw !== undefined) drawn.push(reads("u", number(guess.u_draw)));
      add("guess.draw", ...drawn, writes("guesses", tokenList(texts.slice(0, t + 1))));
    });
    add("guess.loop", reads("k", `${k}: the loop ends`));
    add("guess.end", reads("guesses", tokenList(texts)));
  }

  function addTest() {  // returns the texts of the round's tokens
    // `replay` (trace.html) decides the round by other draws; no token: it is not in the row's top.
    const {accepted, token} = replay(round, us);
    const last = token ? token.text : "one of the other tokens";
    const ids = [...texts.slice(0, accepted), last];
    add("verify.def", reads("guesses", tokenList(texts)));
    add("verify.check", reads("guesses", tokenList(texts)));
    for (let t = 0; t < Math.min(accepted + 1, k); t++) {
      const guess = round.guesses[t];
      add("verify.loop", writes("t", String(t)), writes("token", shownText(guess.text)));
      add("verify.test", reads(`p_target[${t}][token]`, number(guess.p_target)),
        reads(`p_draft[${t}][token]`, number(guess.p_draft)),
        reads("u", number(us[t])),
        writes("accept", testedLine(guess, us[t])));
    }
    if (accepted < k) {
      add("verify.replace", reads(`residual[${accepted}]`,
        shortRow(round.rows[accepted], "residual")), reads("u", number(us.at(-1))),
        writes("returned", tokenList(ids)));
      return ids;
    }
    add("verify.loop", reads("guesses", "all are accepted: the loop ends"));
    add("verify.bonus", reads(`p_target[${k}]`, shortRow(round.rows[k], "target")),
      reads("u", number(us.at(-1))), writes("returned", tokenList(ids)));
    return ids;
  }
}

// u against the ratio: a line from 0 to 1, and the verdict in words.
function testedLine(guess, u) {
  const line = element("div", {class: "stretch", "aria-hidden": "true"});
  drawThreshold(line, guess.threshold, u);
  const marker = element("i", {class: "marker"});
  marker.style.left = `${100 * u}%`;
  line.append(marker);
  const sign = u < guess.threshold ? "<" : "≥";
  const verdict = u < guess.threshold ? "True" : "False";
  return element("div", {class: "uniform"}, line, element("p", {}, element("code", {},
    `${number(u)} ${sign} ${number(guess.threshold)}: ${verdict}`)));
}

// The listing of run.listing: a line of each function's name and file, then its lines. The
// papers' steps, which the code has at the end of a line, are repeated beside it.
function drawListing() {
  const lines = new Map();  // place -> its element
  const parts = run.listing.map(({name, file, lines: all}) => {
    const items = all.map(({number: n, text, place}) => {
      const start = text.indexOf("# [");  // of a comment such as "# [3] [4] [5]"
      const steps = start < 0 ? "" : text.slice(start).match(/\[\d\]/g).join("");
      const item = element("li", {}, element("span", {class: "n"}, String(n)),
        element("span", {class: "paper"}, steps), element("code", {}, text));
      if (place) lines.set(place, item);
      return item;
    });
    const head = element("li", {class: "file"}, `${file}: ${name}`);
    return element("ol", {}, head, ...items);
  });
  return {lines, box: element("div", {class: "listing", tabindex: "0",
    "aria-label": "The code of a round"}, ...parts)};
}

let codeIsOpen = true;  // the reader's choice holds for all rounds

// The code of a round: its lines, the one that runs, its values, and two buttons.
function explainCode(round) {
  const {lines, box} = drawListing();
  const values = element("dl", {class: "values", "aria-live": "polite"});
  const where = element("span", {class: "soft"});
  const back = element("button", {}, "Line back"), forward = element("button", {}, "Next line");
  const state = {steps: codeSteps(round, recordedDraws(round)), i: 0};
  function draw() {
    state.i = Math.min(state.i, state.steps.length - 1);
    const {place, values: shownValues} = state.steps[state.i];
    for (const [placeOfLine, line] of lines) {
      line.classList.toggle("runs", placeOfLine === place);
      line.toggleAttribute("aria-current", placeOfLine === place);
    }
    values.replaceChildren(...shownValues.flatMap(([name, value, isWritten]) => [
      element("dt", isWritten ? {class: "written"} : {}, name, isWritten ? " ←" : ""),
      element("dd", {}, value)]));
    where.textContent = `line ${state.i + 1} of ${state.steps.length}`;
    inView(box, lines.get(place));
  }
  // "Next line" at the last line shows the next round's first line. "Line back" at the first line
  // shows the last line of the round before.
  function go(by) {
    const next = state.i + by;
    if (next >= 0 && next < state.steps.length) {
      state.i = next;
      return draw();
    }
    move(by);
    const other = at(`round-${shown}`).querySelector("details.code");
    const i = by > 0 ? 0 : Infinity;  // draw() makes Infinity the last line
    other?.walk(i);
  }
  const made = element("details", codeIsOpen ? {class: "code", open: ""} : {class: "code"},
    element("summary", {}, "The code, line by line, with this round's numbers"),
    element("p", {}, back, forward, where),
    element("div", {class: "code-and-values"}, box, values));
  back.addEventListener("click", () => go(-1));
  forward.addEventListener("click", () => go(1));
  made.addEventListener("toggle", () => { codeIsOpen = made.open; });
  made.walk = i => { state.i = i; draw(); };
  made.go = go;
  made.redraw = us => { state.steps = codeSteps(round, us); draw(); };
  draw();
  return made;
}

// Scroll the listing, not the page, until a line can be seen. Its offset counts from the box.
function inView(box, line) {
  if (line.offsetTop < box.scrollTop) box.scrollTop = line.offsetTop;
  const below = line.offsetTop + line.offsetHeight - box.clientHeight;
  if (below > box.scrollTop) box.scrollTop = below;
}

// The keys j and k step through the code of the round that is shown.
function stepCode(by) {
  const code = at(`round-${Math.max(shown, 1)}`)?.querySelector("details.code[open]");
  code?.go(by);
}
