"""Compute how far public acceptance rules are from the target's distribution.

    python -m exact.rules                      the tables of docs/wild_tables.md, on toy A
    python -m exact.rules --group NAME         one of these tables, such as "the rule"
    python -m exact.rules WORDS                the rules with one of these words, on all toys
    python -m exact.rules --settings [WORDS]   settings around the rule that are misapplied
    python -m exact.rules --public             the wrong rules that were met in public

exact/rules/register.py defines the rules, and exact/rules/settings.py the rules about settings.
tests/test_rules.py compares every figure of docs/wild_tables.md with the enumerated rules.
"""

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from math import ceil, isclose, log, log1p
from typing import Any

import numpy as np

from exact.law import prefix_law
from exact.rules import register
from exact.rules.register import DOUBTS, Rule, enumerated_rule, tokens_per_round
from exact.rules.settings import SETTINGS, enumerated_setting
from exact.toys import TOYS, Found, X, distance_cell
from lib.markdown import markdown_table
from lib.terminal import Help, Parser, command, print_safely

ROUNDING = 1e-12  # nats: a smaller divergence is rounding
ERROR = 1e-6  # the probability that texts are taken for those of the wrong source
EXPONENTS = np.linspace(0, 1, 1001)  # values of s that are tried


def texts_needed(found: Found) -> str:
    """Return how many texts tell the rule from the target; "-" for an exact rule.

    Of n texts the likelier source, the rule or the target, is named. The probabilities of both
    mistakes sum to at most a(s)^n for each s in [0, 1], where a(s) is the sum of rule^s
    target^(1 - s) over all texts (Chernoff). This is ERROR for n = log(ERROR) / log(a(s)).
    """
    pairs = [(p, found.wanted[text]) for text, p in found.texts.items()
             if p and text in found.wanted]
    if not pairs:  # every text of the rule is impossible, so the first one shows it
        return "1"
    # a(s) - 1 is summed, because a difference near 1e-8 from 1 would lose half of its digits
    terms = [float(p_wanted) * np.expm1(EXPONENTS * log1p(float((p - p_wanted) / p_wanted)))
             for p, p_wanted in pairs]
    missing = float(1 - sum(p_wanted for _, p_wanted in pairs))  # texts that the rule lacks
    nats = -log1p(np.sum(terms, axis=0).min() - missing)
    return "-" if nats <= ROUNDING else f"{ceil(log(1 / ERROR) / nats):,}"


# ---- tables

Columns = dict[str, Callable[[Any, str], Any]]  # {head: (rule, toy) -> cell}


def where_met(rule: Rule) -> str:
    """Return a rule's links, then links to where it was called inexact but is exact."""
    links = [rule.seen] if rule.seen else []
    links += [f"doubted in {where}" for where in DOUBTS.get(rule.id, ())]
    return "; ".join(links)


def distances(enumerated: Callable) -> Columns:
    """Return the columns of the distances with 1, 2 and 3 guesses.

    enumerated    (rule, toy, K) -> the Found of the rule
    """
    def column(K):
        return lambda rule, toy: distance_cell(enumerated(rule, toy, K).distance)

    return {f"K = {K}": column(K) for K in (1, 2, 3)}


VERDICT: Columns = {"exact?": lambda rule, toy: "exact" if rule.exact else "**no**"}
COLUMNS: Columns = {
    "tokens/round": lambda rule, toy: f"{float(tokens_per_round(rule, toy, 3)):.3f}",
    "texts": lambda rule, toy: texts_needed(enumerated_rule(rule, toy, 3)),
    # the links of a rule do not depend on the toy
    "used, asked about or fixed in": lambda rule, toy: where_met(rule)}


def rules_table(head: str, rules: Sequence, columns: Columns,
                toys: Iterable[str] = "A") -> str:
    """Return a table with a line for each rule on each toy; `head` is above the sentences."""
    lines = []
    for rule in rules:
        for toy in toys:
            label = rule.name if toys == "A" else f"{rule.name}; toy {toy}"
            cells = [cell(rule, toy) for cell in columns.values()]
            lines.append([rule.id, label, *cells])
    return markdown_table(["id", head, *columns], lines)


def group_table(name: str) -> str:
    """Return the table of a group; the exact rules' distances are 0 and left out."""
    columns = distances(enumerated_rule) | COLUMNS
    if name == "exact":
        columns = {head: cell for head, cell in COLUMNS.items() if head != "texts"}
    return rules_table(name, register.GROUPS[name], columns)


def settings_table(words: Sequence[str] = ()) -> str:
    """Return the table of the rules about settings, or of those with one of the words."""
    columns = VERDICT | distances(enumerated_setting)
    columns["used or fixed in"] = lambda rule, toy: rule.seen
    if words:
        return rules_table("rule", with_words(words, SETTINGS), columns, TOYS)
    return rules_table("rule", SETTINGS, columns)


def project(words: str, url: str) -> str:
    """Return the repository that a link leads to, or the words of a link to a different place.

    >>> project("vllm #47386", "https://github.com/vllm-project/vllm/pull/47386")
    'vllm'
    """
    repository = re.match(r"https://github\.com/[^/]+/([^/]+)", url)
    return repository[1] if repository else words


def first_token(found: Found) -> str:
    """Return the distribution of the first new token, as a bar and as numbers, or "right"."""
    got, wanted = ([float(prefix_law(texts, len(X) + 1)[*X, token]) for token in range(3)]
                   for texts in (found.texts, found.wanted))
    if all(isclose(p, p_wanted) for p, p_wanted in zip(got, wanted)):
        return "right"
    bars = "".join("▁▂▃▄▅▆▇█"[min(int(8 * p), 7)] for p in got)
    return f"{bars} " + " ".join(f"{p:.2f}".removeprefix("0") for p in got)


def public_table() -> str:
    """Return the table of the wrong rules that were met in public, on toy A with K = 3.

    A rule has a line for each of its projects; the lines are sorted by project.
    """
    lines = []
    for rules, enumerated in ((register.RULES, enumerated_rule),
                              (SETTINGS, enumerated_setting)):
        for rule in rules:
            links: dict[str, list] = {}
            if not rule.exact:
                for words, url in re.findall(r"\[(.*?)\]\((.*?)\)", rule.seen):
                    links.setdefault(project(words, url), []).append(f"[{words}]({url})")
            for name, of_project in links.items():
                found = enumerated(rule, "A", 3)
                lines.append([name, rule.id, rule.status, first_token(found),
                              f"{float(found.distance):.4f}", ", ".join(of_project)])
    lines.sort(key=lambda line: line[0].lower())
    return markdown_table(["project", "rule", "status", "first token", "total variation",
                           "where"], lines)


# ---- the command

def with_words(words: Sequence[str], rules: Sequence) -> list:
    """Return the rules with one of the words; ValueError for a word of no rule."""
    found = []
    for word in words:
        has_word = [rule for rule in rules if word.lower() in f"{rule.id} {rule.name}".lower()]
        # an empty word would match every rule
        if not word.strip() or not has_word:
            raise ValueError(f"no rule has {word!r} in its id or sentence")
        found += has_word
    return [rule for rule in rules if rule in found]  # each once


@command("exact.rules")
def main(argv: list[str] | None = None) -> None:
    """Print one of the tables."""
    parser = Parser("python -m exact.rules", description=__doc__.split("\n")[0],
                    formatter_class=Help)
    parser.add_argument("words", nargs="*", metavar="WORD",
                        help="show the rules with one of these words in their id or sentence, "
                        "on all toys")
    table = parser.add_mutually_exclusive_group()
    table.add_argument("--settings", action="store_true",
                       help="show the rules for penalties, masks and stop tokens")
    table.add_argument("--public", action="store_true",
                       help="show the wrong rules that were met in public, by project")
    table.add_argument("--group", choices=[*register.GROUPS],
                       help="show only this group: the exact rules, or rules with this fault")
    args = parser.parse_args(argv)
    if args.words and (args.public or args.group):
        flag = "--public" if args.public else "--group"
        raise ValueError(f"{flag} shows all its rules: leave out {args.words[0]}")
    if args.public:
        text = public_table()
    elif args.settings:
        text = settings_table(args.words)
    elif args.words:
        columns = VERDICT | distances(enumerated_rule) | COLUMNS
        text = rules_table("rule", with_words(args.words, register.RULES), columns, TOYS)
    else:
        groups = [args.group] if args.group else register.GROUPS
        text = "\n\n".join(map(group_table, groups))
    print_safely(text, sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
