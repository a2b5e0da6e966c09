"""Draw power.svg: which test of which engine finds which wrong rule (benchmarks/power.py).

A cell is as green as the fraction of runs in which the test fails, which is right for a wrong
rule.
"""

from docs.pictures.svg import EDGE, picture
from exact.rules.batched import EXACT
from lib.svg import rect, text

LEFT = 196  # x of the first column
TOP = 172  # y of the first row
SIDE = 30  # of a cell
ROW = 25  # from one row to the next


def caught(figures):
    """Return {wrong rule: {test: fraction of runs that find it}}, the rarest finds last."""
    found = {rule: {test: 1 - passed / runs for test, (passed, runs) in row.items()}
             for rule, row in figures.items() if rule not in EXACT}
    return dict(sorted(found.items(), key=lambda item: -sum(item[1].values())))


def draw(figures):
    """Return the picture of the stored figures."""
    found = caught(figures)
    n_found = {test: sum(row[test] > 0.5 for row in found.values())
               for test in next(iter(found.values()))}
    tests = sorted(n_found, key=lambda test: -n_found[test])
    parts = [text(EDGE, 32, "Which test finds which wrong rule?", "bold"),
             rect(EDGE, 47, 12, 12, "green_bar", rx=2),
             text(EDGE + 18, 58, "found", "small"),
             rect(EDGE + 74, 47, 12, 12, "track", rx=2),
             text(EDGE + 92, 58, "missed", "small")]
    for column, test in enumerate(tests):
        x = LEFT + (SIDE + 3) * column
        parts.append(text(x + 20, TOP - 10, test, "small",
                          transform=f"rotate(-90 {x + 20} {TOP - 10})"))
        for i, row in enumerate(found.values()):
            y = TOP + ROW * i
            parts += [rect(x, y, SIDE, ROW - 3, "track", rx=2),
                      rect(x, y, SIDE, ROW - 3, "green_bar", rx=2, fill_opacity=row[test])]
        parts.append(text(x + SIDE / 2, TOP + ROW * len(found) + 16, str(n_found[test]),
                          "small", text_anchor="middle"))
    for i, rule in enumerate(found):
        parts.append(text(EDGE, TOP + ROW * i + 16, rule, "small"))
    parts.append(text(EDGE, TOP + ROW * len(found) + 16, f"found, of {len(found)}", "small"))
    listed = "; ".join(f"{test} finds {n_found[test]}" for test in tests)
    return picture(TOP + ROW * len(found) + 32,
                   f"Of {len(found)} wrong rules, {listed}.", parts)
