"""Draw easy.svg: a story, with a bar under each token for how far draft and target agree on it.

    acceptance    the sum over the vocabulary of min(p_draft, p_target) at the token's position
    HARD, EASY    tokens below HARD are red, tokens from EASY on are green
"""

from docs.pictures.svg import ADVANCE, EDGE, SMALL_SIZE, mono, picture, positions
from lib.svg import rect, text

LINE = 46  # distance of two lines of text
COLUMNS = 46  # letters in a line
TOP = 36  # y of the first line
BAR = 9  # from a line of text down to its bars
HARD = 0.6
EASY = 0.8


def ink(acceptance):
    """Return the colour of a token."""
    if acceptance < HARD:
        return "red"
    return "green" if acceptance >= EASY else ""


def token_with_bar(string, where, acceptance):
    """Yield a token and its bar; `where` has the positions of its letters and later ones."""
    visible = string.strip()
    # A token of line ends alone has nothing to show.
    if not visible:
        return
    n_leading_spaces = len(string) - len(string.lstrip())
    column, row = where[n_leading_spaces]  # of the first visible letter
    x = EDGE + column * SMALL_SIZE * ADVANCE
    y = TOP + row * LINE
    width = len(visible) * SMALL_SIZE * ADVANCE - 2  # 2: a gap between the bars of two tokens
    yield mono(x, y, visible, SMALL_SIZE, ink(acceptance))
    # A grey bar of the whole width, and over it a green one for the acceptance.
    yield rect(x, y + BAR, width, 7, "track", rx=1)
    yield rect(x, y + BAR, width * acceptance, 7, "green_bar", rx=1)


def draw(data):
    """Return the picture of one story."""
    tokens = data["tokens"]
    story = data["prompt"] + "".join(string for string, _ in tokens)
    where = positions(story, COLUMNS)
    parts = [mono(EDGE, TOP, data["prompt"], SMALL_SIZE, "muted")]
    start = len(data["prompt"])  # index in the story of the next token's first letter
    for string, acceptance in tokens:
        parts += token_with_bar(string, where[start:], acceptance)
        start += len(string)
    last_line = max(row for _, row in where)  # counts from 0
    legend = TOP + (last_line + 1) * LINE
    height = legend + 46
    green = f"green: {100 * EASY:.0f} % or more of the probability is shared"
    red = f"red: less than {100 * HARD:.0f} % is shared"
    parts += [text(EDGE, legend, green, "small green"),
              text(EDGE, legend + 24, red, "small red")]
    title = f"How far draft and target agree on each token of a story: {story}"
    return picture(height, title, parts)
