"""Draw round.svg: one recorded round at temperature 1, in steps [1] to [4] of speculative.py.

    column      one per guess, and one for the target's row after the last guess
    threshold   min(1, p_target / p_draft), the probability to accept; u is compared with it
"""

from docs.pictures.palette import colour
from docs.pictures.svg import ADVANCE, EDGE, SMALL_SIZE, WIDTH, mono, picture
from lib.svg import line, rect, text

HEIGHT = 632
STEP = 90  # from one column to the next
BOX = 82  # width of a column
# y of the text before the round, of the name of each step, and of the text after the round
TEXT = 32
GUESS = 92
SCORE = 204
ACCEPT = 290
RESAMPLE = 446
AFTER = 590
VERDICTS = {True: ("<", "accepted", "bold green"), False: ("\u2265", "rejected", "bold red")}


def named_step(y, name, note):
    """Yield a step's name at the left, and what it does at the right."""
    yield text(EDGE, y, name, "bold")
    yield text(WIDTH - EDGE, y, note, "small muted", text_anchor="end")


def cell(i, y, string, class_=None):
    """Return a text in the middle of a column."""
    return text(EDGE + STEP * i + BOX / 2, y, string, class_, text_anchor="middle")


def running_text(y, label, pieces):
    """Yield a label, and below it text in pieces of (string, class)."""
    yield text(EDGE, y, label, "small muted")
    x = EDGE
    for string, class_ in pieces:
        n_leading_spaces = len(string) - len(string.lstrip())  # they are not drawn
        first_letter = x + n_leading_spaces * SMALL_SIZE * ADVANCE
        yield mono(first_letter, y + 24, string.strip(), SMALL_SIZE, class_)
        x += len(string) * SMALL_SIZE * ADVANCE  # the width of all its letters


def guesses(data):
    """Yield [1]: the draft's tokens, each with its probability."""
    n_guesses = len(data["guesses"])
    yield from named_step(GUESS + 12, "[1] guess", f"{n_guesses} draft passes: p_draft of each")
    for i, guess in enumerate(data["guesses"]):
        # Edges at half a pixel are drawn sharp.
        yield rect(EDGE + STEP * i + 0.5, GUESS + 26.5, BOX, 32, "box", rx=6)
        is_rejected = guess.get("accepted") is False  # None: not tested
        class_ = "mono red bold" if is_rejected else "mono"
        yield cell(i, GUESS + 48, guess["text"].strip(), class_)
        yield cell(i, GUESS + 80, f"{guess['p_draft']:.3f}")


def scores(data):
    """Yield [2]: one pass of the target gives a row for each guess, and one more."""
    yield from named_step(SCORE + 12, "[2] score", "1 target pass: p_target of each")
    n_guesses = len(data["guesses"])
    # One box over all columns, because one pass computes all of these numbers.
    yield rect(EDGE + 0.5, SCORE + 26.5, STEP * n_guesses + BOX, 34, "track", rx=6)
    for i, guess in enumerate(data["guesses"]):
        yield cell(i, SCORE + 49, f"{guess['p_target']:.3f}")
    yield cell(n_guesses, SCORE + 49, "+ 1 row", "small muted")


def verdicts(data):
    """Yield [3]: u against the threshold, up to the first rejected guess."""
    yield from named_step(ACCEPT + 12, "[3] accept", "if u < min(1, p_target / p_draft)")
    for i, guess in enumerate(data["guesses"]):
        # A guess after the rejected one was not tested, and has no "accepted".
        if "accepted" in guess:
            yield from test(i, guess["u_accept"], guess["threshold"], guess["accepted"])
        else:
            yield from not_tested(i, "not", "tested")
    yield from not_tested(len(data["guesses"]), "not", "needed")  # the row of the bonus token


def not_tested(i, *words):
    """Yield two words instead of a verdict."""
    for n, word in enumerate(words):
        yield cell(i, ACCEPT + 46 + 20 * n, word, "small muted")


def test(i, u, threshold, accepted):
    """Yield the threshold as a bar, u as a tick on it, and the verdict."""
    x = EDGE + STEP * i
    y = ACCEPT + 32
    relation, verdict, class_ = VERDICTS[accepted]
    # The bar's whole width is the probability 1, so u lies on the green part if u < threshold.
    yield rect(x, y, BOX, 12, "track", rx=2)
    yield rect(x, y, BOX * threshold, 12, "green_bar", rx=2)
    yield line(x + BOX * u, y - 5, x + BOX * u, y + 17, "mark")
    yield cell(i, y + 40, f"u = {u:.2f}", "small")
    yield cell(i, y + 62, f"{relation} {threshold:.2f}", "small")
    yield cell(i, y + 88, verdict, f"small {class_}")


def resample(data):
    """Yield [4]: the residual, as the token that was drawn and the sum of all others."""
    yield from named_step(RESAMPLE + 12, "[4] resample", "from max(0, p_target \u2212 p_draft)")
    # The last id is drawn from the residual, in the row after the accepted ones.
    n_accepted = len(data["ids"]) - 1
    row = data["rows"][n_accepted]["top"]
    drawn = data["ids"][-1]
    # The residual's tokens share the interval 0 .. 1: a token's part is as long as its
    # probability.
    intervals = {token: (start, end) for token, *_, start, end in row}
    start, end = intervals[drawn["id"]]
    p = end - start
    width = STEP * len(data["guesses"]) + BOX
    y = RESAMPLE + 26.5
    # The right box is all other tokens, the left box the drawn token.
    yield rect(EDGE + width * p + 0.5, y, width * (1 - p) - 2, 32, "box", rx=6)
    yield rect(EDGE + 0.5, y, width * p - 2, 32, "own", rx=6)
    words = f"{drawn['text'].strip()} {p:.2f}"
    yield text(EDGE + width * p / 2, y + 22, words, "mono bold", text_anchor="middle")
    yield text(EDGE + width * (1 + p) / 2, y + 22, f"all others {1 - p:.2f}", "muted",
               text_anchor="middle")
    yield text(EDGE + width * p / 2, y + 54, "drawn", "small bold blue", text_anchor="middle")


def draw(data):
    """Return the picture of one recorded round."""
    texts = [token["text"] for token in data["ids"]]
    accepted = [(string, "green") for string in texts[:-1]]
    own = texts[-1]  # the token that the target adds
    new = [*accepted, (own, "blue bold")]
    after = f"the text after the round: {len(new)} tokens for 1 target pass"
    parts = [*running_text(TEXT, "the text so far", [(data["prompt"], "")]),
             line(EDGE, TEXT + 40, WIDTH - EDGE, TEXT + 40),
             *guesses(data), *scores(data), *verdicts(data), *resample(data),
             line(EDGE, AFTER - 26, WIDTH - EDGE, AFTER - 26),
             *running_text(AFTER, after, [(data["prompt"], ""), *new])]
    style = (f".box{{fill:none;stroke:{colour('grey')}}}"
             f".own{{fill:none;stroke:{colour('blue')};stroke-width:2}}")
    words = "".join(token["text"] for token in data["guesses"])
    title = (f"One round: after '{data['prompt']}' the draft guesses '{words.strip()}', the "
             f"target accepts {len(accepted)} of them and adds '{own.strip()}'.")
    return picture(HEIGHT, title, parts, style)
