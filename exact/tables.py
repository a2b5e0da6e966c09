"""Write what exact/ finds as Markdown, and read the command lines of its registers.

    find(name, toy, K)    what a rule does: `texts` {text: probability}, the target's `wanted`,
                          and their `distance`
"""

from math import ceil, log, log1p

from lib.markdown import markdown_table
from lib.terminal import Help, Parser

ROUNDING = 1e-12  # what floats may add up to; nearly all figures are Fractions
ERROR = 1e-6  # of the test in the column of texts


def texts_needed(found):
    """Return how many texts show the rule except with probability ERROR; "-" if none can.

    A text that the target cannot write shows the rule alone. If the rule writes no such text, the
    best test needs log(1 / ERROR) / KL texts (Stein's lemma).
    """
    impossible = sum(p for text, p in found.texts.items() if text not in found.wanted)
    if impossible == 1:
        return "1"
    if impossible:
        # n texts are all possible for the target with probability (1 - impossible)^n
        return f"{ceil(log(ERROR) / log1p(-impossible)):,}"
    nats = sum(p * log(p / found.wanted[text]) for text, p in found.texts.items() if p)
    return f"{ceil(log(1 / ERROR) / nats):,}" if nats > ROUNDING else "-"


def has_words(rule, words):
    return any(word.lower() in rule.name.lower() for word in words)


def distances_table(rules, toys, words, find, columns):
    """Show the distances of all rules on toy A, or of those with a word on every toy.

    columns    {head: (rule, toy) -> cell}, what else is shown
    """
    cases = [(rule.name, rule, "A") for rule in rules]
    if words:
        cases = [(f"{rule.name}; toy {toy}", rule, toy) for rule in rules
                 if has_words(rule, words) for toy in toys]
    rows = []
    for name, rule, toy in cases:
        found = [float(find(rule.name, toy, K).distance) for K in (1, 2, 3)]
        distances = [f"{distance:.4f}" if distance > ROUNDING else "0" for distance in found]
        others = [cell(rule, toy) for cell in columns.values()]
        rows.append([name, "exact" if rule.exact else "**no**", *distances, *others])
    return markdown_table(["rule", "exact?", "K = 1", "K = 2", "K = 3", *columns], rows)


def parser_of(program, doc, rules):
    """Return the parser of a command that shows rules, all of them or those with some words."""
    def word(text):
        if not text.strip() or not any(has_words(rule, [text]) for rule in rules):
            raise ValueError(f"no rule has {text!r} in its name")
        return text

    parser = Parser(f"python -m {program}", description=doc.split("\n")[0],
                    formatter_class=Help)
    parser.add_argument("words", nargs="*", type=word, metavar="WORD",
                        help="show the rules with one of these words in the name, on all toys")
    return parser
