"""Draw race.svg: plain and speculative decoding write one text at their recorded pace, slowed.

    end       the recorded second at which a round ended, with its pass of the target
    guessed   the recorded second at which the draft had made a round's guesses
    where     [(column, line)] of each letter of a text
    second    of the picture; a recorded second s is shown at LEAD + slower * s. The picture
              pauses at its end, then starts again

CSS animates the picture. Every part is drawn as it looks at the end, and keyframes say how it
looked before. So a reader without animation (prefers-reduced-motion) sees the end.
"""

from docs.pictures.palette import colour
from docs.pictures.svg import ADVANCE, EDGE, SMALL_SIZE, WIDTH, mono, picture, positions
from lib.svg import element, line, rect, text

LINE = 23  # distance of two lines of text
COLUMNS = 49  # letters in a line
PANEL = 244  # height of the part of one decoder; its y begin at 0
TITLE = 30  # y of the title
TOP = 60  # y of the text's first line
BAR = 184  # y of the bar
HEIGHT = 2 * PANEL + 68
LEAD = 0.8  # seconds before the run
PLAY = 12  # seconds of the longer run, about
PAUSE = 4.5  # seconds after the run
FADE = 0.06  # seconds of a change
DROP = 15  # how far a discarded guess falls
LEGEND = [(0, "guess", "grey"), (64, "accepted", "green"), (154, "rejected", "red struck"),
          (244, "the large model's own", "blue own")]
SHOWN = "opacity:1"
HIDDEN = "opacity:0"


# ---- time

class Timeline:
    """Hold the seconds of the picture, and the style classes of everything that changes."""

    def __init__(self, longest):
        # The longer run plays for about PLAY seconds. A multiple of 5 is easy to read.
        self.slower = max(1, round(PLAY / longest / 5) * 5)
        self.longest = longest
        self.loop = LEAD + self.slower * longest + PAUSE
        self.grey = f"fill:{colour('grey')}"
        self.green = f"fill:{colour('green')}"
        self.red = f"fill:{colour('red')}"
        self.classes = {}  # {keyframes: class}

    def change(self, style, *changes):
        """Return the class of a part that starts as `style`; changes: (recorded second, style).

        Parts that change alike share a class.
        """
        frames = [(0, style)]  # (second of the picture, style)
        for recorded, new_style in changes:
            second = LEAD + self.slower * recorded
            _, former_style = frames[-1]
            # CSS changes a style evenly from frame to frame. The first frame repeats the former
            # style, so that the change begins at this second.
            frames.append((second, former_style))
            frames.append((second + FADE, new_style))
        # A frame's place is a percentage of the loop.
        keyframes = "".join(f"{100 * second / self.loop:.2f}%{{{style}}}"
                            for second, style in frames)
        return self.classes.setdefault(keyframes, f"e{len(self.classes)}")

    def appear(self, end):
        """Return the class of a part that is shown from the recorded second `end` on."""
        return self.change(HIDDEN, (end, SHOWN))

    def accept(self, guessed, end):
        """Return the class of a guess that is shown in grey and then turns green."""
        # It appears with the draft's guesses, and turns green at the end of the target's pass.
        return self.change(f"{HIDDEN};{self.grey}", (guessed, f"{SHOWN};{self.grey}"),
                           (end, f"{SHOWN};{self.green}"))

    def reject(self, end):
        """Return the class of a grey guess that is then struck out."""
        return self.change(f"{self.grey};text-decoration:none",
                           (end, f"{self.red};text-decoration:line-through"))

    def fall(self, guessed, end):
        """Return the class of guesses that are shown, fall at the round's end, and vanish."""
        down = f"transform:translateY({DROP}px)"
        shown_s = end - guessed
        vanished = end + shown_s  # they are shown below the line as long as in it
        in_line = (guessed, f"{SHOWN};transform:none")
        below = (end, f"{SHOWN};{down}")
        return self.change(HIDDEN, in_line, below, (vanished, f"{HIDDEN};{down}"))

    def style(self):
        """Return the CSS of all classes."""
        # A class and its keyframes have one name.
        frames = [f"@keyframes {name}{{{steps}}}" for steps, name in self.classes.items()]
        uses = [f".{name}{{animation-name:{name}}}" for name in self.classes.values()]
        # What is not shown at the end is `gone`. All animations are as long as the loop, and
        # begin in the pause at its end, so that the first picture is the finished one.
        shared = (f".gone{{opacity:0}}g,text,rect{{animation:{self.loop:.2f}s linear infinite;"
                  f"animation-delay:{PAUSE / 2 - self.loop:.2f}s}}")
        still = "@media (prefers-reduced-motion:reduce){*{animation:none!important}}"
        return "\n".join([shared, *uses, *frames, still])


# ---- text

def text_of(run, prompt):
    """Return the whole text of a run."""
    return prompt + "".join(token for result in run["rounds"] for token, _ in result["ids"])


def drawn_letters(string, where, class_=""):
    """Return a piece of text at its position; spaces and line ends at its ends are not drawn.

    `where` has the positions of the piece's letters, from its first one on.
    """
    visible = string.strip()
    if not visible:
        return ""
    n_leading_spaces = len(string) - len(string.lstrip())
    column, row = where[n_leading_spaces]  # of the first visible letter
    x = EDGE + column * SMALL_SIZE * ADVANCE
    y = TOP + row * LINE
    return mono(x, y, visible, SMALL_SIZE, class_)


def written_letters(run, prompt, clock, own):
    """Yield the prompt, and each round's guesses, accepted or falling, and the target's token.

    `own` is the class of the target's tokens.
    """
    so_far = prompt
    # The positions are those of the final text, so no word moves to a new line later.
    where = positions(text_of(run, prompt), COLUMNS)
    start = 0.0  # the recorded second at which the round begins
    yield drawn_letters(prompt, where)
    for result in run["rounds"]:
        guessed = start + result["draft_s"]
        end = result["end"]
        for token, origin in result["ids"]:
            if origin == "accepted":
                class_ = f"green {clock.accept(guessed, end)}"
            else:  # the target's token: the round's other guesses were rejected or not tested
                yield rejected(result, so_far, clock, (guessed, end))
                class_ = f"{own} {clock.appear(end)}"
            yield drawn_letters(token, where[len(so_far) :], class_)
            so_far += token
        start = end


def rejected(result, before, clock, times):
    """Return a round's rejected guess, struck out, and the untested guesses after it.

    `before` is the text before the rejected guess, `times` the round's (guessed, end).
    """
    _, end = times
    parts = []
    for guess, accepted in result["guesses"]:
        if accepted:
            continue
        # The final text has different tokens here, and may break its lines elsewhere. So
        # positions are computed with the rejected guess in the text.
        where = positions(before + guess, COLUMNS)[len(before) :]
        is_tested = accepted is not None
        class_ = clock.reject(end) if is_tested else "grey"
        parts.append(drawn_letters(guess, where, class_))
        before += guess
    if not parts:
        return ""
    return element("g", "".join(parts), class_=f"gone {clock.fall(*times)}")


# ---- the panels

def bar(run, clock):
    """Yield a block for each pass of the target; in the gap before a block the draft runs."""
    width = WIDTH - 2 * EDGE  # the longer of both runs takes all of it
    start = 0.0  # the recorded second at which the round begins
    yield rect(EDGE, BAR, width, 12, "track", rx=2)
    for result in run["rounds"]:
        # Parts of the bar's width: the pass begins after the draft's guesses.
        left = (start + result["draft_s"]) / clock.longest
        right = result["end"] / clock.longest
        block_width = max(width * (right - left) - 1.2, 1.0)  # 1.2: parts two blocks
        yield rect(EDGE + width * left, BAR, block_width, 12,
                   f"block {clock.appear(result['end'])}")
        start = result["end"]


def panel(title, note, run, body, clock):
    """Yield a decoder's title, text and bar, and its time and passes at the end."""
    yield text(EDGE, TITLE, title, "bold")
    yield text(WIDTH - EDGE, TITLE, note, "small muted", text_anchor="end")
    yield from filter(None, body)  # without the empty pieces of invisible tokens
    yield from bar(run, clock)
    # The explanation is shown during the run, and the figures replace it at the run's end.
    yield text(EDGE, BAR + 34, "a box is a pass of the large model",
               f"small muted gone {clock.change(SHOWN, (run['seconds'], HIDDEN))}")
    yield text(EDGE, BAR + 34, f"{1000 * run['seconds']:.0f} ms, {len(run['rounds'])} passes",
               clock.appear(run["seconds"]))


def draw(data):
    """Return the picture of one recorded race."""
    plain = data["autoregressive"]
    fast = data["speculative"]
    prompt = data["prompt"]
    # Plain decoding is the longer run.
    clock = Timeline(plain["seconds"])
    most = 1 + max(len(result["guesses"]) for result in fast["rounds"])  # tokens per round
    gain = plain["seconds"] / fast["seconds"]
    plain_parts = panel("plain decoding", "1 token per pass", plain,
                        written_letters(plain, prompt, clock, ""), clock)
    fast_parts = [*panel("speculative decoding", f"up to {most} tokens per pass", fast,
                         written_letters(fast, prompt, clock, "blue own"), clock),
                  text(WIDTH - EDGE, BAR + 34, f"{gain:.1f} \u00d7 the speed",
                       f"bold {clock.appear(clock.longest)}", text_anchor="end")]
    # The second panel is drawn like the first one, and then moved down.
    parts = [*plain_parts, line(EDGE, PANEL - 8, WIDTH - EDGE, PANEL - 8),
             element("g", "".join(fast_parts), transform=f"translate(0 {PANEL - 4})"),
             line(EDGE, 2 * PANEL - 8, WIDTH - EDGE, 2 * PANEL - 8),
             *(text(EDGE + x, HEIGHT - 42, name, f"small {class_}")
               for x, name, class_ in LEGEND),
             text(EDGE, HEIGHT - 16, f"a recorded run, played {clock.slower} times slower",
                  "small muted")]
    style = (f".own{{font-weight:700}}.struck{{text-decoration:line-through}}"
             f".block{{fill:{colour('blue_bar')}}}{clock.style()}")
    words = (f"Plain decoding writes in {1000 * plain['seconds']:.0f} ms, speculative decoding "
             f"the same in {1000 * fast['seconds']:.0f} ms (median of "
             f"{len(data['speedups'])} runs): {text_of(fast, prompt)}")
    return picture(HEIGHT, words, parts, style)
