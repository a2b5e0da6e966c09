"""Change each figure of the pages; a wrong figure must contradict the table it is quoted from.

    python -m tests.planted_figures     # every figure of every page that has markers

A figure is changed by 1, 2, 5 and 10 in its last place, up and down, one change at a time. A
change is seen if the page's markers (docs/figures.py) put a different figure there. The exit
status is 1 if less than 97 % of the changes are seen.
"""

import re
import sys

from docs import figures
from docs.readme import BLOCK
from lib.terminal import Parser
from tests.pages import file_text

# What is found here is not what docs/figures.py finds, but every decimal number, every percentage
# and every table cell with one number, outside code, links, comments and labels of tables.
ELSEWHERE = re.compile(
    r"```.*?```|^    .*?$|`[^`]*?`|<!--.*?-->|\]\(.*?\)|^\[[^\]]*\]: .*?$"
    r"|^\|[^\n]*\n\|---[^\n]*$|^\| [^|\n]*|Sec\. \S*|Theorem \S*", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.])\d*\.\d+(?![\w.]*\w)|\b\d+(?= %| percent)"
                    r"|(?<=[|+] )[\d,]+(?=(?: [a-zA-Z]+)? \|)")
STEPS = [sign * step for step in (1, 2, 5, 10) for sign in (1, -1)]


def places(text):
    """Return where a page has figures, as the start and the end of each."""
    blank = BLOCK.sub(lambda match: " " * len(match[0]), text)
    blank = ELSEWHERE.sub(lambda match: " " * len(match[0]), blank)
    return [match.span() for match in NUMBER.finditer(blank)]


def changed(figure, step):
    """Return a figure changed by some units of its last place, or None if it would be negative."""
    n_places = len(figure.partition(".")[2])
    number = float(figure.replace(",", "")) + step / 10**n_places
    return f"{number:.{n_places}f}" if number > -1e-9 else None


def wrong_pages(text, steps=STEPS):
    """Yield each page with one wrong figure, and the words before the figure."""
    for start, end in places(text):
        for step in steps:
            wrong = changed(text[start:end], step)
            if wrong is not None:
                where = f"{text[max(start - 30, 0):start]}[{text[start:end]} -> {wrong}]"
                yield text[:start] + wrong + text[end:], where


def is_seen(text):
    """Return whether a page differs from what its markers name."""
    try:
        return figures.renewed_page(text) != text
    except figures.Unbound:
        return True


def main(argv=None):
    """Print how many wrong figures of each page are seen, and those that are not."""
    parser = Parser("python -m tests.planted_figures", description=__doc__.split("\n")[0])
    parser.parse_args(argv)
    n_planted = 0
    n_seen = 0
    for page in figures.PAGES:
        planted = [(where, is_seen(wrong)) for wrong, where in wrong_pages(file_text(page))]
        print(f"{page}: {sum(seen for _, seen in planted)} of {len(planted)} are seen")
        for where, seen in planted:
            if not seen:
                print("    " + " ".join(where.split()))
        n_planted += len(planted)
        n_seen += sum(seen for _, seen in planted)
    print(f"{n_seen} of {n_planted} wrong figures are seen, {n_seen / n_planted:.1%}")
    return int(n_seen < 0.97 * n_planted)


if __name__ == "__main__":
    sys.exit(main())
