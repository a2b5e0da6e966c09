"""Draw chat.svg: an answer of the chat model, and which of its tokens were accepted guesses.

benchmarks/results/chat.json has the tokens: their texts, and who made them.
"""

from docs.pictures.figures import LETTERS, WIDTH
from docs.pictures.palette import colour
from docs.tables import stored

MAKERS = {"guess": ("green_bar", "an accepted guess"),
          "target": ("blue_bar", "the target's own token")}
# in points
LINE = 24  # from line to line
LEFT, RIGHT = 14, 72 * WIDTH - 14  # the ends of a line


def placed(tokens):
    """Yield (x, y, width, word, maker) of each token, in points from the upper left corner."""
    from matplotlib.font_manager import FontProperties  # optional: requirements/plots.txt
    from matplotlib.textpath import text_to_path

    font = FontProperties(size=LETTERS)  # DejaVu Sans, the widest of the fonts that pages have
    x, y = LEFT, 3 * LINE
    for text, maker in tokens:
        word = text.strip()
        width, _, _ = text_to_path.get_text_width_height_descent(word, font, ismath=False)
        x += 4 * text.startswith(" ")
        if x + width > RIGHT:
            x, y = LEFT, y + LINE
        yield x, y, width, word, maker
        x += width + 1.5


def draw(figure):
    """Draw each token over a bar in its maker's colour, below the key."""
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    axes.set(xlim=(0, 72 * WIDTH), ylim=(72 * figure.get_figheight(), 0))
    for x, y, width, word, maker in placed(stored("chat")["tokens"]):
        name, _ = MAKERS[maker]
        axes.text(x, y, word)
        axes.barh(y + 5.5, width, 3, left=x, color=colour(name))
    for row, (name, words) in enumerate(MAKERS.values()):
        axes.barh(LINE * (row + 0.7), 24, 3, left=LEFT, color=colour(name))
        axes.text(LEFT + 32, LINE * (row + 0.7), words, va="center")
