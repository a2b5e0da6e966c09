"""Compute how far public verification rules are from the target's distribution.

    python -m exact.rules                      the tables of docs/wild_tables.md, on toy A
    python -m exact.rules --group NAME         one of these tables: "the test", "the rows", ..
    python -m exact.rules WORDS                the rules with one of these words, on all toys
    python -m exact.rules --alarms             rules that were called inexact, and are exact
    python -m exact.rules --settings [WORDS]   settings around the test that are misapplied
    python -m exact.rules --public             the wrong rules that were met in public

exact/rules/register.py defines the rules, and exact/rules/settings.py the rules about settings.
tests/test_rules.py compares every figure of docs/wild_tables.md with the enumerated rules.
"""

import re
import sys
from collections.abc import Callable, Sequence
from math import ceil, isclose, log, log1p
from typing import Any

from exact.rules import register, settings
from exact.rules.register import ALARMS, BY_ID, Rule, enumerated_rule, tokens_per_round
from exact.rules.settings import enumerated_setting
from exact.toys import TOYS, Found, X, distance_cell
from lib.markdown import markdown_table
from lib.terminal import Help, Parser, command, print_safely

ROUNDING = 1e-12  # nats: a smaller divergence is rounding
ERROR = 1e-6  # the probability that the number of texts in a table does not show a wrong rule


def texts_needed(found: Found) -> str:
    """Return how many texts show the rule with probability 1 - ERROR; "-" for an exact rule.

    One text that the target cannot write shows the rule. If the rule writes no such text, the
    best test needs about log(1 / ERROR) / KL texts, where KL is the divergence of the rule's
    texts from the target's (Stein's lemma).
    """
    impossible = sum(p for text, p in found.texts.items() if text not in found.wanted)
    # every text of the rule is impossible, so the first one shows it; log1p(-1) does not exist
    if impossible == 1:
        return "1"
    if impossible:
        # n texts show nothing if each is one that the target can write. This has probability
        # (1 - impossible)^n, which is ERROR for n = log(ERROR) / log(1 - impossible)
        return f"{ceil(log(ERROR) / log1p(-impossible)):,}"
    # KL: the mean over the rule's texts of log(the rule's probability / the target's)
    nats = 0.0
    for text, p in found.texts.items():
        if p:  # a text of probability 0 adds 0, and log(0) does not exist
            nats += p * log(p / found.wanted[text])
    if nats <= ROUNDING:
        return "-"
    return f"{ceil(log(1 / ERROR) / nats):,}"


# ---- tables

DISTANCES = {"K = 1": 1, "K = 2": 2, "K = 3": 3}  # {head of a column: K}

Columns = dict[str, Callable[[Any, str], str]]  # {head: (rule, toy) -> cell}


def has_words(rule: Any, words: Sequence[str]) -> bool:
    """Return whether the rule's id or sentence has one of the words."""
    return any(word.lower() in name.lower() for word in words for name in (rule.id, rule.name))


def distance_cells(rule: Any, toy: str, enumerated: Callable) -> list[str]:
    """Return the cells of a rule's distances with 1, 2 and 3 guesses."""
    return [distance_cell(enumerated(rule, toy, K).distance) for K in DISTANCES.values()]


def distances_table(rules: Sequence, words: Sequence[str], enumerated: Callable,
                    columns: Columns) -> str:
    """Return a table: all rules on toy A, or with words the rules that match them on all toys.

    enumerated    (rule, toy, K) -> the Found of the rule
    columns       the columns after the distances
    """
    toys = [*TOYS] if words else ["A"]
    shown = [rule for rule in rules if not words or has_words(rule, words)]
    lines = []
    for rule in shown:
        for toy in toys:
            # with words there is a line for each rule and toy, so the label names the toy
            label = f"{rule.name}; toy {toy}" if words else rule.name
            verdict = "exact" if rule.exact else "**no**"
            distances = distance_cells(rule, toy, enumerated)
            others = [cell(rule, toy) for cell in columns.values()]
            lines.append([rule.id, label, verdict, *distances, *others])
    return markdown_table(["id", "rule", "exact?", *DISTANCES, *columns], lines)


def where_met(rule: Rule) -> str:
    """Return a rule's links, then links to where it was called inexact but is exact."""
    # only an exact rule can be among ALARMS
    links = [rule.seen] if rule.seen else []
    links += [f"doubted in {where}" for rule_id, _, where in ALARMS if rule_id == rule.id]
    return "; ".join(links)


COLUMNS: Columns = {
    "tokens/round": lambda rule, toy: f"{float(tokens_per_round(rule, toy, 3)):.3f}",
    "texts": lambda rule, toy: texts_needed(enumerated_rule(rule, toy, 3)),
    # the links of a rule do not depend on the toy
    "used, asked about or fixed in": lambda rule, toy: where_met(rule)}


def rules_table(words: Sequence[str]) -> str:
    """Return the table of the rules with one of the words, on all toys."""
    return distances_table(register.RULES, words, enumerated_rule, COLUMNS)


def group_table(name: str) -> str:
    """Return the table of a group on toy A; the exact rules' distances are 0 and left out."""
    is_exact = name == "exact"
    distance_heads = [*DISTANCES]
    heads = [*COLUMNS]
    if is_exact:
        distance_heads = []
        heads = ["tokens/round", "used, asked about or fixed in"]
    lines = []
    for rule in register.GROUPS[name]:
        line = [rule.id, rule.name]
        if not is_exact:
            line += distance_cells(rule, "A", enumerated_rule)
        line += [COLUMNS[head](rule, "A") for head in heads]
        lines.append(line)
    return markdown_table(["id", name, *distance_heads, *heads], lines)


def all_groups() -> str:
    """Return the tables of all groups."""
    return "\n\n".join(map(group_table, register.GROUPS))


def settings_table(words: Sequence[str] = ()) -> str:
    """Return the table of the rules about settings."""
    columns: Columns = {"used or fixed in": lambda rule, toy: rule.seen}
    return distances_table(settings.SETTINGS, words, settings.enumerated_setting, columns)


def alarms_table() -> str:
    """Return the table of ALARMS, with each exact rule's largest distance on any toy."""
    lines = []
    for rule_id, said, where in ALARMS:
        rule = BY_ID[rule_id]
        # distances are Fractions, so a 0 in the table is exactly 0
        largest = max(enumerated_rule(rule, toy, K).distance for toy in TOYS for K in (1, 2, 3))
        lines.append([rule.id, rule.name, said, where, largest])
    return markdown_table(["id", "rule", "what was said or asked", "where", "distance"], lines)


def project(words: str, url: str) -> str:
    """Return the repository that a link leads to, or the words of a link to a different place.

    >>> project("vllm #47386", "https://github.com/vllm-project/vllm/pull/47386")
    'vllm'
    """
    repository = re.match(r"https://github\.com/[^/]+/([^/]+)", url)
    return repository[1] if repository else words


def public_rules() -> list[tuple]:
    """Return [(project, rule, links, Found on toy A with K = 3)] of the wrong rules with links.

    A rule has an entry for each of its projects; the entries are sorted by project.
    """
    entries = []
    for rules, enumerated in ((register.RULES, enumerated_rule),
                              (settings.SETTINGS, enumerated_setting)):
        for rule in rules:
            links: dict[str, list] = {}
            if not rule.exact:
                for words, url in re.findall(r"\[(.*?)\]\((.*?)\)", rule.seen):
                    links.setdefault(project(words, url), []).append(f"[{words}]({url})")
            entries += [(name, rule, ", ".join(of_project), enumerated(rule, "A", 3))
                        for name, of_project in links.items()]
    return sorted(entries, key=lambda entry: entry[0].lower())


def first_token(found: Found) -> str:
    """Return the distribution of the first new token, as a bar and as numbers, or "right"."""
    got, wanted = ([float(sum(p for text, p in texts.items() if text[len(X)] == token))
                    for token in range(3)] for texts in (found.texts, found.wanted))
    if all(isclose(p, p_wanted) for p, p_wanted in zip(got, wanted)):
        return "right"
    bars = "".join("▁▂▃▄▅▆▇█"[min(int(8 * p), 7)] for p in got)
    return f"{bars} " + " ".join(f"{p:.2f}".removeprefix("0") for p in got)


def public_table() -> str:
    """Return the table of the wrong rules that were met in public, by project."""
    lines = [[name, rule.id, rule.status, first_token(found),
              f"{float(found.distance):.4f}", links]
             for name, rule, links, found in public_rules()]
    return markdown_table(["project", "rule", "status", "first token", "total variation",
                           "where"], lines)


# ---- the command

def checked_words(words: list[str], rules: Sequence) -> list[str]:
    """Return the words; raise ValueError for a file, or a word of no rule."""
    for word in words:
        if word.endswith(".py"):
            raise ValueError("the known rules are listed here; to check your own rule, run "
                             f"python -m exact.judge {word} --all")
        # an empty word would match every rule
        if not word.strip() or not any(has_words(rule, [word]) for rule in rules):
            raise ValueError(f"no rule has {word!r} in its id or sentence")
    return words


@command("exact.rules")
def main(argv: list[str] | None = None) -> None:
    """Print one of the tables."""
    parser = Parser("python -m exact.rules", description=__doc__.split("\n")[0],
                    formatter_class=Help)
    parser.add_argument("words", nargs="*", metavar="WORD",
                        help="show the rules with one of these words in their id or sentence, "
                        "on all toys")
    table = parser.add_mutually_exclusive_group()
    table.add_argument("--alarms", action="store_true",
                       help="show the rules that were called inexact in public but are exact")
    table.add_argument("--settings", action="store_true",
                       help="show the rules for penalties, masks and stop tokens")
    table.add_argument("--public", action="store_true",
                       help="show the wrong rules that were met in public, by project")
    table.add_argument("--group", choices=[*register.GROUPS],
                       help="show only this group: the exact rules, or rules with this fault")
    args = parser.parse_args(argv)
    if args.words and (args.alarms or args.public or args.group):
        flag = "--alarms" if args.alarms else "--public" if args.public else "--group"
        raise ValueError(f"{flag} shows all its rules: leave out {args.words[0]}")
    # words are looked up in the rules of the table that is shown
    if args.alarms:
        text = alarms_table()
    elif args.public:
        text = public_table()
    elif args.settings:
        text = settings_table(checked_words(args.words, settings.SETTINGS))
    elif args.words:
        text = rules_table(checked_words(args.words, register.RULES))
    else:
        text = group_table(args.group) if args.group else all_groups()
    print_safely(text, sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
