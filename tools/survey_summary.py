"""What the records of tools/survey.py say together: acceptance by place, tokens per pass.

    place      1, 2, .. in the round: the second guess is examined only if the first was accepted
    a, b       a count of every prompt, and how many there could have been: sum(a) / sum(b) is told
    error      half of a 95 % interval: 1.96 standard errors

Guesses of one text are no independent trials, but texts are. So the error is that of a ratio of
sums over n texts, r = sum(a) / sum(b), which is near normal when there are many (Cochran (1977),
"Sampling Techniques", Ch. 6): se^2 = n / (n - 1) * sum((a - r b)^2) / sum(b)^2.
"""

import json

import numpy as np

from docs.pictures.figures import below, colour
from docs.pictures.palette import MARKERS
from benchmarks.tables import table
from theory.checks import need

Z = 1.96  # standard errors on either side hold 95 % of a normal distribution
NEEDED = ("ids", "passes", "examined", "accepted")


def read_records(paths):
    """{(decoder, settings as text): records}; a last line without its end is left out."""
    groups = {}
    for path in paths:
        with open(path, "rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    record = parsed(line, path)
                    key = record["decoder"], json.dumps(record["settings"], sort_keys=True)
                    groups.setdefault(key, []).append(record)
    return groups


def parsed(line, path):
    """The record of a line; ValueError if it is something else."""
    try:
        record = json.loads(line)
        known = {"decoder", "settings"} <= record.keys() and (
            "error" in record or all(name in record for name in NEEDED))
    except (ValueError, AttributeError):
        known = False
    need(known, "records of tools.survey", f"another line in {path}")
    return record


def ratio_and_error(a, b):
    """sum(a) / sum(b) and its error, by the prompts that have any b; None where too few have.

    >>> r, error = ratio_and_error([1, 3], [2, 4])  # a - r b = -1/3, 1/3; se^2 = 2 * 2/9 / 36
    >>> (round(r, 3), round(error, 3))
    (0.667, 0.218)
    """
    a, b = (np.array(values, float)[np.array(b) > 0] for values in (a, b))
    if not len(b):
        return None, None
    r, n = a.sum() / b.sum(), len(b)
    if n == 1:
        return float(r), None
    return float(r), float(Z * np.sqrt(n / (n - 1) * ((a - r * b) ** 2).sum()) / b.sum())


def summarise(groups):
    """The settings that all decoders share, and {name with the others: figures of a decoder}."""
    keys = [(name, json.loads(settings)) for name, settings in groups]
    shared = {flag: value for flag, value in (keys[0][1] if keys else {}).items()
              if all(settings.get(flag) == value for _, settings in keys)}
    rows = {}
    for (name, settings), records in zip(keys, groups.values()):
        own = {flag: value for flag, value in settings.items() if flag not in shared}
        rows[" ".join([name, flags(own)]).strip()] = row_of(records)
    return {"settings": flags(shared), "rows": rows}


def flags(settings):
    """Settings as the words of a command line."""
    text = lambda value: ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return " ".join(f"--{flag} {text(value)}" for flag, value in settings.items())


def row_of(records):
    """Figures of one decoder."""
    good = [record for record in records if "error" not in record]
    chains = [record for record in good if record["examined"] is not None]
    count = lambda name, t: [record[name][t] if t < len(record[name]) else 0 for record in chains]
    places = range(max((len(record["examined"]) for record in chains), default=0))
    return {"prompts": len(records), "errors": len(records) - len(good),
            "tokens": sum(len(record["ids"]) for record in good),
            "tokens_per_pass": ratio_and_error([len(record["ids"]) for record in good],
                                               [record["passes"] for record in good]),
            "acceptance": [ratio_and_error(count("accepted", t), count("examined", t))
                           for t in places]}


def tell(summary):
    """A table, a column for each decoder, and what its errors are."""
    rows, figures = summary["rows"], summary["rows"].values()
    cells = [[name, *(str(row[name]) for row in figures)]
             for name in ("prompts", "errors", "tokens")]
    cells.append(["tokens per pass", *(with_error(row["tokens_per_pass"]) for row in figures)])
    for t in range(max((len(row["acceptance"]) for row in figures), default=0)):
        cells.append([f"acceptance at place {t + 1}", *(
            with_error(*row["acceptance"][t : t + 1]) for row in figures)])
    yield table([summary["settings"], *rows], cells)
    yield ("±: half of a 95 % interval, 1.96 standard errors of a ratio of sums over prompts. At a "
           "place only guesses count whose predecessors in the round were all accepted.")


def with_error(pair=(None, None)):
    """A figure and its error, as a cell."""
    value, error = pair
    return "-" if value is None else f"{value:.3f} ± " + ("-" if error is None else f"{error:.3f}")


def draw(figure, summary):
    """Acceptance by place, and tokens per pass."""
    rows = summary["rows"]
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for i, (name, row) in enumerate(rows.items()):
        style = {"color": colour(i), "marker": MARKERS[i % len(MARKERS)], "capsize": 3}
        value, error = np.array([row["tokens_per_pass"]], float).T
        right.errorbar([i], value, error, **style)
        value, error = np.array(row["acceptance"] or np.empty((0, 2)), float).T
        left.errorbar(np.arange(1, 1 + len(value)), value, error, label=name, **style)
    most = max((len(row["acceptance"]) for row in rows.values()), default=0)
    left.set(xlabel="place in the round", ylabel="acceptance", ylim=(0, 1),
             xticks=range(1, 1 + most), title="How often a guess is accepted whose "
             "predecessors were\n(bars: 95 % intervals)")
    right.set(ylim=(0, None), xlim=(-0.5, len(rows) - 0.5), xticks=[],
              title="Tokens per pass of the target")
    below(left, ncols=2)
