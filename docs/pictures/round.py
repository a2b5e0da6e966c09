"""Draw round.svg: one recorded round at temperature 1, in steps [1] to [4] of speculative.py.

    columns     one per guess, and one for the target's row after the last guess
    threshold   min(1, p_target / p_draft), the probability to accept; u is compared with it
"""

from docs.pictures.svg import ADVANCE, element, line, mono, picture, rect, text

WIDTH, HEIGHT = 840, 436
LEFT, STEP, BOX = 232, 118, 104  # of the columns: first edge, from one to the next, width
TEXT, GUESS, SCORE, ACCEPT, RESAMPLE, AFTER = 36, 74, 156, 226, 312, 410  # baselines and tops
EDGE = 24  # of the panel


def step(y, name, *notes):
    """Yield a step's name at the left, with notes."""
    yield text(EDGE, y, name, "bold")
    for i, note in enumerate(notes):
        yield text(EDGE, y + 19 + 17 * i, note, "small muted")


def running_text(y, label, pieces):
    """Yield a label, then text in pieces of (string, class)."""
    yield text(EDGE, y, label, "muted")
    x = LEFT
    for string, class_ in pieces:
        lead = len(string) - len(string.lstrip())
        yield mono(x + lead * 16 * ADVANCE, y, string.strip(), 16, class_)
        x += len(string) * 16 * ADVANCE


def guesses(data):
    """Yield [1]: the draft's tokens, each with its probability."""
    yield from step(GUESS + 14, "[1] guess", f"{len(data['guesses'])} passes of the draft",
                    "p_draft of each guess")
    for i, guess in enumerate(data["guesses"]):
        x = LEFT + STEP * i
        yield rect(x + 0.5, GUESS - 5.5, BOX, 30, "box", rx=6)
        yield mono(x + BOX / 2, GUESS + 14, guess["text"].strip(), 15, text_anchor="middle")
        yield text(x + BOX / 2, GUESS + 50, f"{guess['p_draft']:.3f}", text_anchor="middle")


def scores(data):
    """Yield [2]: one pass of the target gives a row for each guess, and one more."""
    yield from step(SCORE + 12, "[2] score", "1 pass of the target: p_target")
    count = len(data["guesses"]) + 1
    yield rect(LEFT + 0.5, SCORE - 5.5, STEP * (count - 1) + BOX, 34, "pass", rx=6)
    for i, guess in enumerate(data["guesses"]):
        yield text(LEFT + STEP * i + BOX / 2, SCORE + 16, f"{guess['p_target']:.3f}",
                   text_anchor="middle")
    yield text(LEFT + STEP * (count - 1) + BOX / 2, SCORE + 16, "+ 1 row", "muted",
               text_anchor="middle")


def verdicts(data):
    """Yield [3]: u against the threshold, up to the first rejected guess."""
    yield from step(ACCEPT + 8, "[3] accept", "if u < min(1, p_target / p_draft)")
    for i, guess in enumerate(data["guesses"]):
        x = LEFT + STEP * i
        if "accepted" not in guess:
            yield text(x + BOX / 2, ACCEPT + 8, "not tested", "small muted", text_anchor="middle")
            continue
        yield from test(x, guess["u_accept"], guess["threshold"], guess["accepted"])
    yield text(LEFT + STEP * len(data["guesses"]) + BOX / 2, ACCEPT + 8, "not needed",
               "small muted", text_anchor="middle")  # the bonus token


def test(x, u, threshold, accepted):
    """Yield the threshold as a bar, u as a tick on it, and the verdict."""
    yield rect(x, ACCEPT - 3, BOX, 12, "track", rx=2)
    yield rect(x, ACCEPT - 3, BOX * threshold, 12, "green_bar", rx=2)
    yield line(x + BOX * u, ACCEPT - 8, x + BOX * u, ACCEPT + 14, "mark")
    relation, class_ = ("<", "green") if accepted else ("\u2265", "red")
    yield text(x + BOX / 2, ACCEPT + 32, f"{u:.2f} {relation} {threshold:.2f}", "small",
               text_anchor="middle")
    yield text(x + BOX / 2, ACCEPT + 52, "accepted" if accepted else "rejected",
               f"bold {class_}", text_anchor="middle")


def resample(data):
    """Yield [4]: the residual; the tokens whose box holds a label, and the sum of all others."""
    yield from step(RESAMPLE + 14, "[4] resample", "from max(0, p_target \u2212 p_draft)")
    x, width, drawn = LEFT, STEP * len(data["guesses"]) + BOX, data["ids"][-1]["id"]
    top = [token for token in data["last"]["top"] if width * token["p"] >= BOX]
    for token in [*top, {"id": None, "text": "others", "p": 1 - sum(t["p"] for t in top)}]:
        wide, chosen = width * token["p"], token["id"] == drawn
        yield rect(x + 0.5, RESAMPLE - 5.5, wide - 2, 30, "own" if chosen else "box", rx=6)
        name = token["text"].strip()
        label = [element("tspan", name, class_="muted" if token["id"] is None else
                         "mono bold ink" if chosen else "mono ink"), f" {token['p']:.2f}"]
        yield element("text", "".join(label), x=x + wide / 2, y=RESAMPLE + 14,
                      class_="bold" if chosen else None, text_anchor="middle")
        if chosen:
            yield text(x + wide / 2, RESAMPLE + 44, "drawn", "bold blue", text_anchor="middle")
        x += wide


def draw(data, colour):
    """Return the picture of one recorded round."""
    *accepted, (own, _) = [(token["text"], "green") for token in data["ids"]]
    new = [*accepted, (own, "blue bold")]
    parts = [rect(0.5, 0.5, WIDTH - 1, HEIGHT - 1, "panel", rx=8),
             *running_text(TEXT, "the text so far", [(data["prompt"], "")]),
             line(EDGE, TEXT + 18, WIDTH - EDGE, TEXT + 18),
             *guesses(data), *scores(data), *verdicts(data), *resample(data),
             line(EDGE, AFTER - 32, WIDTH - EDGE, AFTER - 32),
             *running_text(AFTER, f"{len(new)} tokens for 1 target pass",
                           [(data["prompt"], ""), *new])]
    style = (f".box{{fill:none;stroke:{colour['grey']}}}"
             f".pass{{fill:{colour['track']}}}"
             f".own{{fill:none;stroke:{colour['blue']};stroke-width:2}}")
    words = "".join(token["text"] for token in data["guesses"])
    title = (f"One round: after '{data['prompt']}' the draft guesses '{words.strip()}', the target "
             f"accepts {len(accepted)} of them and adds '{own.strip()}'.")
    return picture(WIDTH, HEIGHT, title, parts, colour, style)
