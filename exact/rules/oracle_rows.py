"""Write the figures of wrong rules, KNOWN, into exact/oracle.py.

    python -m exact.rules.oracle_rows     seconds

The figures are computed by exact/law.py from the rules of the register, row by row and on
Fractions. The oracle's toys are used, but none of its code.
"""

from pathlib import Path

from exact import oracle
from exact.law import completed, text_law, total_variation
from exact.rules.batched import WRONG
from exact.rules.register import BY_ID, rule_step
from exact.toys import X, best, by_later_token, law_of_round, numbered, rows_of_numbers
from lib.terminal import Parser, command
from speculative import guess

K = 3  # guesses of a round of KNOWN; its toys have three tokens


def with_drawn_guesses(rule):
    """Return the rule as the oracle tests it: the oracle draws every guess, even for `best`."""
    if rule.guess is best:
        return rule._replace(guess=guess)
    return rule


def known_figures(rule_id):
    """Return a rule's distance on each toy and its mean tokens per round: a line of KNOWN.

    A text is a first round, completed to K + 1 tokens by draws from the target, as in the
    oracle.
    """
    rule = with_drawn_guesses(BY_ID[rule_id])
    distances = []
    lengths = []
    for pair in oracle.TOYS[3]:
        draft, target = (numbered(rows_of_numbers(model), by_later_token) for model in pair)
        one_round = law_of_round(rule_step(rule, draft, target, K), X, K)
        texts = completed(one_round, X, target, K + 1)
        wanted = text_law(X, target, K + 1)
        distances.append(round(float(total_variation(texts, wanted)), 6))
        lengths.append(float(sum(len(ids) * p for ids, p in one_round.items())))
    return *distances, round(sum(lengths) / len(lengths), 6)


def known_line(name, figures):
    """Return the line of KNOWN as it is in the oracle's file; a long line is two lines."""
    # repr writes single quotes around a name with double quotes in it
    words = repr(name) if '"' in name else f'"{name}"'
    line = f"    {words}: {figures},"
    if len(line) <= 96:
        return line
    return f"    {words}:\n        {figures},"


def with_known(text):
    """Return the text of the oracle's file, with the lines of KNOWN computed again."""
    before, start, rest = text.partition("KNOWN = {  # written by exact/rules/oracle_rows.py\n")
    _, end, after = rest.partition("}\n# end of KNOWN\n")
    assert start and end, f"no KNOWN in {oracle.__file__}"
    lines = [known_line(f"{rule_id}: {BY_ID[rule_id].name}", known_figures(rule_id))
             for rule_id in WRONG]
    return "".join([before, start, "\n".join(lines), "\n", end, after])


# ---- the command

@command("exact.rules.oracle_rows")
def main(argv=None):
    """Write KNOWN."""
    parser = Parser("python -m exact.rules.oracle_rows", description=__doc__.split("\n")[0])
    parser.parse_args(argv)
    path = Path(oracle.__file__)
    path.write_text(with_known(path.read_text("utf-8")), "utf-8")
    print(f"wrote KNOWN into {path}")


if __name__ == "__main__":
    raise SystemExit(main())
