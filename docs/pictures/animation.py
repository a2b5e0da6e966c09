"""Animate race.svg with CSS: keyframes of one loop, in percent of its length.

    second    of the picture: LEAD + slower * recorded seconds; then a pause, then again
    rule      a style class with its keyframes

Every part is drawn as it looks at the end, and keyframes give its past: without animation
(prefers-reduced-motion) the last state is shown.
"""

LEAD, PAUSE, PLAY = 0.8, 4.5, 12  # seconds: before, after, and about how long the longer run takes
FADE, DROP = 0.06, 15  # seconds of appearing; how far a discarded guess falls


class Clock:
    """The seconds of the picture, and the style classes of everything that changes."""

    def __init__(self, longest, colour):
        self.slower = max(1, round(PLAY / longest / 5) * 5)  # a multiple of 5
        self.longest, self.colour = longest, colour
        self.loop = LEAD + self.slower * longest + PAUSE
        self.rules = {}  # {keyframes: class}

    def at(self, seconds):
        """Return the second of the picture."""
        return LEAD + self.slower * seconds

    def percent(self, second):
        return f"{100 * min(max(second / self.loop, 0), 1):.2f}%"

    def rule(self, *frames):
        """Return the class of an animation through (second, style) frames; equal ones share it."""
        steps = "".join(f"{self.percent(second)}{{{style}}}" for second, style in frames)
        return self.rules.setdefault(steps, f"e{len(self.rules)}")

    def appear(self, end):
        """Show nothing before `end`."""
        t = self.at(end)
        return self.rule((0, "opacity:0"), (t, "opacity:0"), (t + FADE, "opacity:1"))

    def vanish(self, end):
        """Show a part until `end`."""
        t = self.at(end)
        return self.rule((0, "opacity:1"), (t - FADE, "opacity:1"), (t, "opacity:0"))

    def accept(self, guessed, end):
        """Turn a grey guess green."""
        t, grey = self.at(guessed), f"fill:{self.colour['grey']}"
        v, green = self.at(end), f"fill:{self.colour['green']}"
        return self.rule((0, f"opacity:0;{grey}"), (t, f"opacity:0;{grey}"),
                         (t + FADE, f"opacity:1;{grey}"), (v, f"opacity:1;{grey}"),
                         (v + FADE, f"opacity:1;{green}"), (self.loop, f"opacity:1;{green}"))

    def discard(self, guessed, end, following):
        """Let a guess fall below the line when the round ends, and vanish with the next."""
        t, v, next_v = self.at(guessed), self.at(end), self.at(following)
        down = f"transform:translateY({DROP}px)"
        return self.rule((0, "opacity:0"), (t, "opacity:0"), (t + FADE, "opacity:1"),
                         (v, "opacity:1;transform:none"), (v + FADE, f"opacity:1;{down}"),
                         (v + 0.6 * (next_v - v), f"opacity:1;{down}"),
                         (next_v - FADE, f"opacity:0;{down}"), (self.loop, f"opacity:0;{down}"))

    def redden(self, end):
        """Show a part in grey until `end`."""
        grey, v = f"fill:{self.colour['grey']}", self.at(end)
        return self.rule((0, grey), (v, grey), (v + FADE, f"fill:{self.colour['red']}"))

    def style(self):
        """Return all keyframes; `all` fades before the loop begins again."""
        whole = self.rule((0, "opacity:1"), (self.loop - 0.4, "opacity:1"),
                          (self.loop, "opacity:0"))
        frames = [f"@keyframes {name}{{{steps}}}" for steps, name in self.rules.items()]
        uses = [f".{name}{{animation-name:{name}}}" for name in self.rules.values()]
        uses.append(f".all{{animation-name:{whole}}}")
        return "\n".join([
            f".gone{{opacity:0}}g,text,rect,line{{animation:{self.loop:.2f}s linear infinite}}",
            *uses, *frames, "@media (prefers-reduced-motion:reduce){*{animation:none!important}}"])
