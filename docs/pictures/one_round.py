"""Draw round.svg: one recorded round at temperature 1, in steps [1] to [4] of speculative.py.

    column      one per guess, and one for the target's row after the last guess
    threshold   min(1, p_target / p_draft), the probability to accept; u is compared with it
"""

from docs.pictures.palette import colour
from docs.pictures.svg import ADVANCE, line, mono, picture, rect, text

WIDTH, HEIGHT = 840, 436
LEFT, STEP, BOX = 232, 118, 104  # of the columns: first edge, from one to the next, width
EDGE = 24  # x of all that stands at the left of the columns
TEXT, AFTER = 36, 410  # y of the text before the round and after it
GUESS, SCORE, ACCEPT, RESAMPLE = 74, 156, 226, 312  # y of each step, near its boxes
VERDICTS = {True: ("<", "accepted", "bold green"), False: ("\u2265", "rejected", "bold red")}


def step(y, name, *notes):
    """Yield a step's name at the left, with notes."""
    yield text(EDGE, y, name, "bold")
    for i, note in enumerate(notes):
        yield text(EDGE, y + 19 + 17 * i, note, "small muted")


def cell(i, y, string, class_=None):
    """Return a text in the middle of a column."""
    return text(LEFT + STEP * i + BOX / 2, y, string, class_, text_anchor="middle")


def running_text(y, label, pieces):
    """Yield a label, then text in pieces of (string, class)."""
    yield text(EDGE, y, label, "muted")
    x = LEFT
    for string, class_ in pieces:
        n_leading_spaces = len(string) - len(string.lstrip())  # they are not drawn
        yield mono(x + n_leading_spaces * 16 * ADVANCE, y, string.strip(), 16, class_)
        x += len(string) * 16 * ADVANCE


def guesses(data):
    """Yield [1]: the draft's tokens, each with its probability."""
    yield from step(GUESS + 14, "[1] guess", f"{len(data['guesses'])} passes of the draft",
                    "p_draft of each guess")
    for i, guess in enumerate(data["guesses"]):
        yield rect(LEFT + STEP * i + 0.5, GUESS - 5.5, BOX, 30, "box", rx=6)
        is_rejected = guess.get("accepted") is False  # None: not tested
        class_ = "mono red bold" if is_rejected else "mono"
        yield cell(i, GUESS + 14, guess["text"].strip(), class_)
        yield cell(i, GUESS + 50, f"{guess['p_draft']:.3f}")


def scores(data):
    """Yield [2]: one pass of the target gives a row for each guess, and one more."""
    yield from step(SCORE + 12, "[2] score", "1 pass of the target: p_target")
    n_guesses = len(data["guesses"])
    yield rect(LEFT + 0.5, SCORE - 5.5, STEP * n_guesses + BOX, 34, "track", rx=6)
    for i, guess in enumerate(data["guesses"]):
        yield cell(i, SCORE + 16, f"{guess['p_target']:.3f}")
    yield cell(n_guesses, SCORE + 16, "+ 1 row", "muted")


def verdicts(data):
    """Yield [3]: u against the threshold, up to the first rejected guess."""
    yield from step(ACCEPT + 8, "[3] accept", "if u < min(1, p_target / p_draft)")
    for i, guess in enumerate(data["guesses"]):
        if "accepted" in guess:
            yield from test(i, guess["u_accept"], guess["threshold"], guess["accepted"])
        else:
            yield cell(i, ACCEPT + 8, "not tested", "small muted")
    yield cell(len(data["guesses"]), ACCEPT + 8, "not needed", "small muted")  # the bonus token


def test(i, u, threshold, accepted):
    """Yield the threshold as a bar, u as a tick on it, and the verdict."""
    x = LEFT + STEP * i
    relation, verdict, class_ = VERDICTS[accepted]
    yield rect(x, ACCEPT - 3, BOX, 12, "track", rx=2)
    yield rect(x, ACCEPT - 3, BOX * threshold, 12, "green_bar", rx=2)
    yield line(x + BOX * u, ACCEPT - 8, x + BOX * u, ACCEPT + 14, "mark")
    yield cell(i, ACCEPT + 32, f"{u:.2f} {relation} {threshold:.2f}", "small")
    yield cell(i, ACCEPT + 52, verdict, class_)


def resample(data):
    """Yield [4]: the residual, as the token that was drawn and the sum of all others."""
    yield from step(RESAMPLE + 14, "[4] resample", "from max(0, p_target \u2212 p_draft)")
    n_accepted = len(data["ids"]) - 1
    row = data["rows"][n_accepted]["top"]
    drawn = data["ids"][-1]
    # Each token of the residual has an interval of 0 .. 1, as long as its probability.
    intervals = {token: (start, end) for token, *_, start, end in row}
    start, end = intervals[drawn["id"]]
    p = end - start
    width = STEP * len(data["guesses"]) + BOX
    yield rect(LEFT + width * p + 0.5, RESAMPLE - 5.5, width * (1 - p) - 2, 30, "box", rx=6)
    yield rect(LEFT + 0.5, RESAMPLE - 5.5, width * p - 2, 30, "own", rx=6)
    words = f"{drawn['text'].strip()} {p:.2f}"
    yield text(LEFT + width * p / 2, RESAMPLE + 14, words, "mono bold", text_anchor="middle")
    yield text(LEFT + width * (1 + p) / 2, RESAMPLE + 14, f"others {1 - p:.2f}", "muted",
               text_anchor="middle")
    yield text(LEFT + width * p / 2, RESAMPLE + 44, "drawn", "bold blue", text_anchor="middle")


def draw(data):
    """Return the picture of one recorded round."""
    texts = [token["text"] for token in data["ids"]]
    accepted = [(string, "green") for string in texts[:-1]]
    own = texts[-1]  # the token that the target adds
    new = [*accepted, (own, "blue bold")]
    parts = [rect(0.5, 0.5, WIDTH - 1, HEIGHT - 1, "panel", rx=8),
             *running_text(TEXT, "the text so far", [(data["prompt"], "")]),
             line(EDGE, TEXT + 18, WIDTH - EDGE, TEXT + 18),
             *guesses(data), *scores(data), *verdicts(data), *resample(data),
             line(EDGE, AFTER - 32, WIDTH - EDGE, AFTER - 32),
             *running_text(AFTER, f"{len(new)} tokens for 1 target pass",
                           [(data["prompt"], ""), *new])]
    style = (f".box{{fill:none;stroke:{colour('grey')}}}"
             f".own{{fill:none;stroke:{colour('blue')};stroke-width:2}}")
    words = "".join(token["text"] for token in data["guesses"])
    title = (f"One round: after '{data['prompt']}' the draft guesses '{words.strip()}', the "
             f"target accepts {len(accepted)} of them and adds '{own.strip()}'.")
    return picture(WIDTH, HEIGHT, title, parts, style)
