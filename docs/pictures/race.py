"""Draw race.svg: plain and speculative decoding write one text at their recorded pace, slowed.

    end       the recorded second at which a round ended, with its pass of the target
    guessed   the second at which the draft was done
    where     (column, line) of each letter of the whole text
    second    of the picture: LEAD + slower * recorded seconds; then a pause, then again

CSS animates it. Every part is drawn as it looks at the end, and keyframes give its past:
without animation (prefers-reduced-motion) the last state is shown.
"""

from docs.pictures.palette import colour
from docs.pictures.svg import ADVANCE, element, mono, picture, positions, rect, text

WIDTH, HEIGHT, MARGIN = 840, 300, 18
PANEL, GAP = 412, 16  # width of a panel, and what lies between the two
SIZE, LINE, COLUMNS = 14, 24, 44  # of the text: letters, distance of lines, letters in a line
TOP, BAR = 76, 216  # first line of the text, and the bar below it
LEAD, PAUSE, PLAY = 0.8, 4.5, 12  # seconds: before, after, and about those of the longer run
FADE, DROP = 0.06, 15  # seconds of a change; how far a discarded guess falls
LEGEND = [(0, "guess", "grey"), (48, "accepted", "green"), (120, "rejected", "red struck"),
          (188, "written by the large model", "blue own")]
SHOWN, HIDDEN = "opacity:1", "opacity:0"


# ---- time

class Clock:
    """Hold the seconds of the picture, and the style classes of everything that changes."""

    def __init__(self, longest):
        self.slower = max(1, round(PLAY / longest / 5) * 5)  # a multiple of 5
        self.longest = longest
        self.loop = LEAD + self.slower * longest + PAUSE
        self.grey, self.green, self.red = (f"fill:{colour(name)}"
                                           for name in ("grey", "green", "red"))
        self.rules = {}  # {keyframes: class}

    def change(self, style, *changes):
        """Return the class of a part that starts as `style`; changes are (second, style).

        Parts that change alike share a class.
        """
        frames = [(0, style)]
        for recorded, later in changes:
            second = LEAD + self.slower * recorded
            frames += [(second, frames[-1][1]), (second + FADE, later)]
        steps = "".join(f"{100 * second / self.loop:.2f}%{{{style}}}" for second, style in frames)
        return self.rules.setdefault(steps, f"e{len(self.rules)}")

    def appear(self, end):
        """Show a part from a second on."""
        return self.change(HIDDEN, (end, SHOWN))

    def accept(self, guessed, end):
        """Show a grey guess, which turns green."""
        return self.change(f"{HIDDEN};{self.grey}", (guessed, f"{SHOWN};{self.grey}"),
                           (end, f"{SHOWN};{self.green}"))

    def reject(self, end):
        """Strike a grey guess out."""
        return self.change(f"{self.grey};text-decoration:none",
                           (end, f"{self.red};text-decoration:line-through"))

    def fall(self, guessed, end):
        """Show guesses, which fall below the line when the round ends and then vanish."""
        down = f"transform:translateY({DROP}px)"
        return self.change(HIDDEN, (guessed, f"{SHOWN};transform:none"), (end, f"{SHOWN};{down}"),
                           (2 * end - guessed, f"{HIDDEN};{down}"))

    def style(self):
        """Return the rules of all classes."""
        frames = [f"@keyframes {name}{{{steps}}}" for steps, name in self.rules.items()]
        uses = [f".{name}{{animation-name:{name}}}" for name in self.rules.values()]
        return "\n".join([
            f".gone{{opacity:0}}g,text,rect{{animation:{self.loop:.2f}s linear infinite}}",
            *uses, *frames, "@media (prefers-reduced-motion:reduce){*{animation:none!important}}"])


# ---- text

def text_of(run, prompt):
    """Return the whole text of a run."""
    return prompt + "".join(token for result in run["rounds"] for token, _ in result["ids"])


def letters(string, where, x0, class_=""):
    """Return a piece of text at its position; spaces and line ends are not drawn."""
    visible = string.strip()
    if not visible:
        return ""
    column, row = where[len(string) - len(string.lstrip())]
    return mono(x0 + column * SIZE * ADVANCE, TOP + row * LINE, visible, SIZE, class_)


def written(run, prompt, clock, x0, own):
    """Yield every round's guesses, accepted or falling, then the target's own token."""
    text = prompt
    where = positions(text_of(run, prompt), COLUMNS)
    start = 0.0
    yield letters(prompt, where, x0)
    for result in run["rounds"]:
        guessed = start + result["draft_s"]
        end = result["end"]
        for token, origin in result["ids"]:
            if origin == "accepted":
                class_ = f"green {clock.accept(guessed, end)}"
            else:
                yield rejected(result, text, clock, (guessed, end), x0)
                class_ = f"{own} {clock.appear(end)}"
            yield letters(token, where[len(text) :], x0, class_)
            text += token
        start = end


def rejected(result, before, clock, times, x0):
    """Return the rejected guess, struck out, and the untested ones after it."""
    parts = []
    for guess, accepted in result["guesses"]:
        if not accepted:
            where = positions(before + guess, COLUMNS)[len(before) :]
            class_ = "grey" if accepted is None else clock.reject(times[1])
            parts.append(letters(guess, where, x0, class_))
            before += guess
    return element("g", "".join(parts), class_=f"gone {clock.fall(*times)}") if parts else ""


# ---- the panels

def bar(run, clock, x0):
    """Yield a block for each pass of the target; the gap before it is the draft's."""
    width = COLUMNS * SIZE * ADVANCE
    start = 0.0
    yield rect(x0, BAR, width, 12, "track", rx=2)
    for result in run["rounds"]:
        left = (start + result["draft_s"]) / clock.longest
        right = result["end"] / clock.longest
        yield rect(x0 + width * left, BAR, max(width * (right - left) - 1.2, 1.0), 12,
                   f"block {clock.appear(result['end'])}")
        start = result["end"]


def panel(x, title, note, run, body, clock):
    """Yield a frame with its text and its bar; at the end, the seconds and passes."""
    x0 = x + MARGIN
    yield rect(x + 0.5, 8.5, PANEL - 1, 256, "panel", rx=8)
    yield text(x0, 36, title, "bold", font_size=16)
    yield text(x + PANEL - MARGIN, 36, note, "small muted", text_anchor="end")
    yield from body
    yield from bar(run, clock, x0)
    yield text(x0, BAR + 31, "each block is a pass of the large model",
               f"small muted gone {clock.change(SHOWN, (run['seconds'], HIDDEN))}")
    yield text(x0, BAR + 31, f"{1000 * run['seconds']:.0f} ms, {len(run['rounds'])} passes of "
               "the large model", clock.appear(run["seconds"]))


def draw(data):
    """Return the picture of one recorded race."""
    plain, fast = data["autoregressive"], data["speculative"]
    prompt = data["prompt"]
    clock = Clock(plain["seconds"])
    left, right = MARGIN, PANEL + GAP + MARGIN
    most = 1 + max(len(result["guesses"]) for result in fast["rounds"])
    gain = plain["seconds"] / fast["seconds"]
    parts = [text(left, 288, "a recorded run of the bundled models, played "
                  f"{clock.slower} times slower", "small muted"),
             *(text(right + x, 288, name, f"small {class_}") for x, name, class_ in LEGEND),
             *panel(0, "plain decoding", "1 token per pass", plain,
                    written(plain, prompt, clock, left, ""), clock),
             *panel(PANEL + GAP, "speculative decoding", f"up to {most} tokens per pass", fast,
                    written(fast, prompt, clock, right, "blue own"), clock),
             text(WIDTH - MARGIN, BAR + 31, f"{gain:.1f} \u00d7 the speed",
                  f"bold {clock.appear(clock.longest)}", text_anchor="end")]
    style = (f".own{{font-weight:700}}.struck{{text-decoration:line-through}}"
             f".block{{fill:{colour('blue_bar')}}}{clock.style()}")
    words = (f"Plain decoding writes in {1000 * plain['seconds']:.0f} ms, speculative decoding "
             f"the same in {1000 * fast['seconds']:.0f} ms (median of "
             f"{len(data['speedups'])} runs): {text_of(fast, prompt)}")
    return picture(WIDTH, HEIGHT, words, filter(None, parts), style)
