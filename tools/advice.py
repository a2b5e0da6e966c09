"""What the papers' formulas make of costs and acceptances, and how it is told. No clock, no model.

    alpha         acceptance: the chance that a guess is kept
    costs         variants.auto.Costs: c, a draft step, and pass_cost[K], a pass over K + 1 rows;
                  both in units of one target row
    acceptances   alpha, then the chance that the second, third, .. guess of one position is kept
    case          the dict of one temperature, or of an acceptance that was given
    row           of a case: what a decoder was predicted to do, and what it did

tools/will_it_pay.py measures what is told here.
"""

import numpy as np

from benchmarks.drawing import draw_race
from docs.pictures.figures import below, colour
from benchmarks.tables import number, ranged, table
from theory.speedup import best_K, expected_tokens, walltime_improvement
from variants.auto import K_MAX, Costs
from variants.best_tree import best_shape, levels, nodes

CHAINS = 3  # how many K are shown and run


# ---- the formulas

def costs_of(ms):
    """Costs in units of one row, of up to 15 guesses; between 9 and 16 rows on a straight line."""
    rows, row = ms["rows_ms"], ms["rows_ms"][1]
    passes = np.interp(range(1, 1 + max(rows)), list(rows), list(rows.values())) / row
    return Costs(ms["draft_ms"] / row, passes.tolist())


def advise(costs, acceptances):
    """The best K and tree by the papers' formulas, and what must hold for any K to pay."""
    (c, pass_cost), alpha = costs, acceptances[0]
    falling = np.minimum.accumulate(acceptances).tolist()
    speedup, shape = best_shape(falling, c, pass_cost[: K_MAX + 1])  # as --widths auto
    return {"c": c, "acceptance": alpha, "acceptances": list(acceptances),
            "K": best_K(alpha, c, pass_cost),
            "predicted": {K: walltime_improvement(alpha, K, c, cost)
                          for K, cost in enumerate(pass_cost) if K},
            "tree": {"predicted": speedup, "guesses": nodes(shape), "levels": levels(shape)},
            "needed_acceptance": needed_acceptance(costs), "allowed_c": allowed_c(costs, alpha)}


def needed_acceptance(costs):
    """The alpha above which some K pays at these costs; None if not even 1 is enough."""
    if not best_K(1, *costs):
        return None
    low, high = 0.0, 1.0
    for _ in range(50):  # a larger alpha never does worse, so halving finds the place
        middle = (low + high) / 2
        low, high = (low, middle) if best_K(middle, *costs) else (middle, high)
    return high


def allowed_c(costs, alpha):
    """The c below which some K pays at this alpha; None if not even 0 is low enough."""
    most = max((expected_tokens(alpha, K) - cost) / K
               for K, cost in enumerate(costs.pass_cost) if K)
    return most if most > 0 else None


def best_few(case):
    """The K of the best predictions, in ascending order."""
    return sorted(sorted(case["predicted"], key=case["predicted"].get)[-CHAINS:])


def predicted_case(costs, alpha):
    """The case of an acceptance that was given: nothing is counted or run."""
    case = advise(costs, [alpha])
    return case | {"name": f"Acceptance {alpha:g}", "rows": {
        f"--K {K}": {"predicted": case["predicted"][K]} for K in best_few(case)}}


def speed(result, plain):
    """What came out of a race: the speed-up, of all repeats, and the tokens of a pass."""
    ratios = np.divide(plain.seconds, result.seconds)
    low, median, high = np.percentile(ratios, [0, 50, 100]).tolist()
    return {"measured": {"low": low, "median": median, "high": high},
            "tokens_per_pass": sum(len(round.ids) for round in result.rounds) / len(result.rounds)}


# ---- in words

def best_row(case):
    """(name, row) of the fastest that was run, or else of the best prediction."""
    speed_up = lambda row: row["measured"]["median"] if "measured" in row else row["predicted"]
    return max(case["rows"].items(), key=lambda item: speed_up(item[1]))


def verdict(row):
    """Does it pay? All repeats of a run must agree."""
    if "measured" not in row:
        return "it should pay" if row["predicted"] > 1 else "it should not pay"
    low, high = row["measured"]["low"], row["measured"]["high"]
    return "it pays" if low > 1 else "it does not pay" if high < 1 else "it is too close to call"


def came_out(name, row, repeats):
    """What the fastest did, or should do."""
    times = "times as fast as plain decoding"
    if "measured" not in row:
        return f"the best, {name}, is predicted to be {row['predicted']:.2f} {times}"
    predicted = f"{number(row['predicted'])} predicted" if row["predicted"] else "no prediction"
    return (f"the fastest that was run, {name}, was {row['measured']['median']:.2f} {times} "
            f"(median of {repeats}; {predicted})")


def sentence(case):
    """What came out, what was predicted, and what would have to hold for it to pay."""
    name, row = best_row(case)
    alpha, c = case["needed_acceptance"], case["allowed_c"]
    enough = ("no acceptance is enough" if alpha is None else
              f"some K pays above an acceptance of {alpha:.2f}")
    cheap = ("no draft is cheap enough" if c is None else
             f"with a draft step below {c:.2f} of a target row")
    return (f"{case['name']}: {verdict(row)}; {came_out(name, row, case.get('repeats'))}; "
            f"at these costs {enough} (here {case['acceptance']:.2f}), at this acceptance {cheap} "
            f"(here {case['c']:.2f}).")


def tell(figures):
    """The paragraphs and tables of all cases."""
    yield (f"Target {figures['target']}, draft {figures['draft']}; {figures['cores']} cores "
           f"({figures['machine']}), few rows by {figures['product']}, BLAS kernels for "
           f"{figures['blas_kernels']}\n")
    for name, ms in figures["costs"].items():
        rows, row = ms["rows_ms"], next(iter(ms["rows_ms"].values()))
        yield table([f"rows in one pass, {name}", *rows, "a draft step"], [
            ["ms", *(number(value) for value in rows.values()), number(ms["draft_ms"])],
            ["relative", *(number(value / row) for value in rows.values()),
             number(ms["draft_ms"] / row)]])
    yield from tell_given([case for case in figures["cases"] if "tried" not in case])
    for case in figures["cases"]:
        if "tried" in case:
            yield from tell_run(case)
        yield case["sentence"] + "\n"


def tell_given(cases):
    """A table of what is predicted for acceptances that were given."""
    if cases:
        yield table(["predicted", *(f"--K {K}" for K in cases[0]["predicted"])],
                    [[case["name"], *map(number, case["predicted"].values())] for case in cases])


def tell_run(case):
    """A table of what was predicted and what came out."""
    tree = case["tree"]
    shape = (f"the best tree has {tree['guesses']} guesses in {tree['levels']} levels"
             if tree["guesses"] > tree["levels"] else "no tree is better than a chain")
    yield (f"{case['name']}: of {case['tried']} guesses {case['acceptance']:.2f} were kept; by the "
           f"formula {shape}.\n")
    yield table(["decoder", "predicted", "measured (lowest - highest)", "tokens/pass"], [
        [name, number(row["predicted"]), ranged(row["measured"]), number(row["tokens_per_pass"])]
        for name, row in case["rows"].items()])


# ---- and drawn

def draw(figure, figures):
    """Predicted speed-up against K, and on it what was measured."""
    axes = figure.subplots()
    for i, case in enumerate(figures["cases"]):
        measured = {name.removeprefix("--K "): row["measured"]["median"]
                    for name, row in case["rows"].items() if "measured" in row}
        draw_race(axes, {K: {"predicted": gain, "speedup": measured.get(K, np.nan)}
                         for K, gain in case["predicted"].items()},
                  case["name"] + f" (acceptance {case['acceptance']:.2f})" * ("tried" in case), i)
    axes.axhline(1, color=colour("ink"), linewidth=0.8)
    axes.set(xlabel="K", ylabel="times faster than plain decoding", ylim=(0, None),
             xticks=[int(K) for K in figures["cases"][0]["predicted"]],
             title=f"{figures['target']} with the draft {figures['draft']}, {figures['cores']} "
             f"cores, {figures['product']} (lines: predicted, points: measured)")
    below(axes, ncols=2)
