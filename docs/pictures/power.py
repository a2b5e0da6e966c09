"""Draw power.svg: which test of which engine finds which wrong rule (benchmarks/power.py).

A cell is as green as the fraction of runs in which the test fails, which is right for a wrong
rule.
"""

from docs.pictures.palette import colour
from docs.tables import stored
from exact.rules.batched import EXACT


def caught(figures):
    """Return {wrong rule: {test: fraction of runs that find it}}, the rarest finds last."""
    found = {rule: {test: 1 - passed / runs for test, (passed, runs) in row.items()}
             for rule, row in figures.items() if rule not in EXACT}
    return dict(sorted(found.items(), key=lambda item: -sum(item[1].values())))


def draw(figure):
    """Draw the stored figures: a column for each test, a row for each rule."""
    axes = figure.subplots()
    found = caught(stored("power"))
    tests = sorted(next(iter(found.values())),
                   key=lambda test: -sum(row[test] for row in found.values()))
    ys = range(len(found))
    for x, test in enumerate(tests):
        shares = [row[test] for row in found.values()]
        axes.barh(ys, 0.9, 0.88, x - 0.45, color=colour("track"))
        axes.barh(ys, 0.9, 0.88, x - 0.45, color=[(colour("green_bar"), p) for p in shares])
        axes.text(x, len(found), str(sum(p > 0.5 for p in shares)), ha="center", va="center")
    axes.set_xticks(range(len(tests)), tests, rotation=90)
    axes.set_yticks(range(len(found) + 1), [*found, f"found, of {len(found)}"])
    axes.set(ylim=(len(found) + 0.5, -0.5))
    axes.tick_params(length=0, top=True, bottom=False, labeltop=True, labelbottom=False)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    figure.suptitle("Which test finds which wrong rule? green: found", x=0.03, ha="left",
                    fontsize="medium")
