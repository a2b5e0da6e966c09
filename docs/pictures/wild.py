"""Draw wild.svg: the distance of each inexact rule found in public.

python -m exact.rules, also with --settings, prints the distances.
"""

import functools
import re
import textwrap

from docs.pictures.svg import EDGE, WIDTH, picture
from exact.rules import register, settings
from exact.rules.register import enumerated_rule
from exact.rules.settings import enumerated_setting
from lib.svg import rect, text

TOY = "A"
K = 3
TOP = 86  # y of the first name
LINE = 20  # from one line of a name to the next
BETWEEN = 34  # from a name's bar to the next name
COLUMNS = 50  # letters in a line of a name
FULL = 290  # the length of the bar of distance 1


@functools.cache
def public_rules():
    """Return [(name, project, distance)] of the inexact rules with a link, largest first."""
    rules = [(rule, enumerated_rule(rule, TOY, K)) for rule in register.RULES if is_met(rule)]
    rules += [(rule, enumerated_setting(rule, TOY, K))
              for rule in settings.SETTINGS if is_met(rule)]
    met = [(rule.name, project(rule.seen), float(found.distance)) for rule, found in rules]
    return sorted(met, key=lambda row: row[2], reverse=True)


def is_met(rule):
    """Return whether a rule is wrong, and has a link to a place where it was met."""
    return rule.seen and not rule.exact


def project(links):
    """Return the repository of the first link, or the words of a link to a different place.

    >>> project("[vllm #47386](https://github.com/vllm-project/vllm/pull/47386)")
    'vllm'
    >>> project("[Weng et al. (2025)](https://arxiv.org/abs/2505.12398)")
    'Weng et al. (2025)'
    """
    # A link in Markdown is [words](url); the first one counts.
    words, url = re.search(r"\[(.*?)\]\((.*?)\)", links).groups()
    repository = re.match(r"https://github\.com/[^/]+/([^/]+)", url)
    return repository[1] if repository else words


def draw(data):
    """Return the picture; `data` is not needed."""
    parts = [text(EDGE, 32, "Inexact rules found in public", "bold"),
             text(EDGE, 54, f"distance from the target (toy {TOY}, K = {K})", "small muted")]
    y = TOP
    rules = public_rules()
    for name, where, distance in rules:
        # A long name has several lines.
        for words in textwrap.wrap(name, COLUMNS):
            parts.append(text(EDGE, y, words, "small"))
            y += LINE
        # The bar, its figure and the place are in the line below the name.
        parts += [rect(EDGE, y - 12, FULL * distance, 13, "red_bar", rx=2),
                  text(EDGE + FULL * distance + 8, y, f"{distance:.3f}", "small"),
                  text(WIDTH - EDGE, y, where, "small muted", text_anchor="end")]
        y += BETWEEN
    listed = "; ".join(f"{name}: {distance:.3f}" for name, _, distance in rules)
    title = f"Bars: the distance of each inexact rule found in public. {listed}."
    return picture(y - 8, title, parts)
