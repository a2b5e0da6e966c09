"""The named tables that pages quote figures from.

    variants, speed-124M, ..       printed by python -m benchmarks from this file of
                                   benchmarks/results
    exact.rules, exact.expected    printed on a page by this module
    costs, K by hand, ..           computed below (COMPUTED), from stored figures or a formula
    training, heads, ..            written down in benchmarks/results/recorded.json, because no
                                   program here prints them
"""

import contextlib
import io
import json
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from benchmarks import __main__ as benchmarks
from exact.expected import chain_bound, chain_mean
from lib.checkpoints.huggingface import THEIR_SIZES
from lib.checkpoints.weights import n_params
from page.page import stored_run
from speculative import guess
from theory.speedup import expected_tokens, walltime_improvement

ROOT = Path(__file__).parent.parent
PAGES = "benchmarks/RESULTS.md", "docs/wild_tables.md"  # they print tables of exact/
PRINTED = re.compile(r"<!-- table: python -m (?P<module>exact\.\S+)(?P<flags>.*?) -->\n"
                     r"(?P<text>.*?)<!-- end -->", re.DOTALL)


class Table(NamedTuple):
    """Hold a table: its name for markers, the words about it, and its cells."""

    name: str
    caption: str  # the paragraph above the table, and the head of the table
    rows: dict  # {label of a row: {head of a column: its cell, text or a number}}


def cells(line):
    """Return the cells of a line of a Markdown table."""
    return [cell.strip() for cell in line.split("|")[1:-1]]


def rows_of(lines):
    """Return the rows of a Markdown table; a second head H becomes "H, second"."""
    head_line, _, *body = map(cells, lines)  # the second line is a rule of dashes
    _, *heads = head_line  # the first cell is above the labels of rows
    for i, head in enumerate(heads):
        if head in heads[:i]:
            heads[i] = f"{head}, second"
    # The first cell of a row is its label.
    return {label: dict(zip(heads, values)) for label, *values in body}


def printed_tables(name, text):
    """Yield the tables of a text that a program printed, with this name for markers."""
    above = ""  # the paragraph before this one, unless it is a table
    for paragraph in text.split("\n\n"):
        lines = paragraph.strip().split("\n")
        if lines[0].startswith("|"):
            yield Table(name, f"{above}\n{lines[0]}", rows_of(lines))
            above = ""
        else:
            above = paragraph


def tables_of_page(page):
    """Yield the tables of a page that modules of exact/ printed, named after the module."""
    for block in PRINTED.finditer((ROOT / page).read_text(encoding="utf-8")):
        yield from printed_tables(block["module"], block["text"])


def benchmark_tables():
    """Yield the tables that the programs of benchmarks/ print from their stored files."""
    for path in sorted((ROOT / "benchmarks/results").glob("*.json")):
        name, _, _ = path.stem.partition("-")  # speed-124M.json is a file of speed.py
        if name in benchmarks.NAMES:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                benchmarks.main([name, "--show", str(path)])
            yield from printed_tables(path.stem, printed.getvalue())


def stored(name):
    """Return the figures of a file of benchmarks/results."""
    return json.loads((ROOT / f"benchmarks/results/{name}.json").read_text(encoding="utf-8"))


def first_round():
    """Return the first round of docs/run.html."""
    return stored_run(ROOT / "docs/run.html")["rounds"][0]


def recorded_tables():
    """Yield the tables of figures that were written down: no program prints them."""
    for name, record in stored("recorded").items():
        # The label of a token begins with a space; the last place of a token in a text counts.
        rows = {label.strip(): dict(zip(record["head"], values))
                for label, *values in record["rows"]}
        yield Table(name, "", rows)


# ---- computed tables

def pass_costs():
    """Return the costs of passes that benchmarks/speed.py prints outside its tables."""
    def costs_of(size):
        passes = stored(f"speed-{size}")["passes"]
        one_row = passes["rows_ms"]["1"]["median"]  # keys of JSON are strings
        return {"floor, ms": passes["floor_ms"], "one row, ms": one_row,
                "a draft pass, in rows": passes["draft_ms"]["median"] / one_row}

    return {size: costs_of(size) for size in ("pair", "124M", "1558M")}


def model_sizes():
    """Return the sizes of the bundled models, and their parameters in millions."""
    def sizes_of(name):
        config = json.loads((ROOT / f"models/{name}/config.json").read_text(encoding="utf-8"))
        sizes = {size: config[theirs] for size, theirs in THEIR_SIZES.items()}
        return sizes | {"parameters": n_params(sizes) / 1e6}

    return {name: sizes_of(name) for name in ("tales-large", "tales-small")}


def worked_round():
    """Return the round of docs/learn.md: its guesses, and the draw that replaces the last."""
    one_round = first_round()
    # d and p are the probabilities of a token by the draft and by the target.
    rows = {guess["text"].strip(): {"d": guess["p_draft"], "p": guess["p_target"],
                                    "ratio": guess["threshold"], "u": guess["u_accept"]}
            for guess in one_round["guesses"]}
    # Three guesses are accepted, and the guess with index 3 is rejected.
    row = one_round["rows"][3]
    top = {name: (d, p) for _, name, d, p, *_ in row["top"]}
    # The overlap is the sum of min(d, p) over all tokens: those in "top", and all others.
    overlap_of_top = sum(min(d, p) for d, p in top.values())
    _, _, overlap_of_others = row["others"]
    # The residual is p - min(d, p), and p adds up to 1.
    mass = 1 - overlap_of_others - overlap_of_top
    # The token that replaces the rejected guess.
    name = one_round["ids"][3]["text"]
    d, p = top[name]
    rows[name.strip()] = {"d": d, "p": p, "p - d": p - d, "mass": mass, "share": (p - d) / mass,
                          "overlap": 1 - mass}
    return rows


def chain_bounds():
    """Return the tokens per round that no lossless test of one chain exceeds."""
    return {"toy A, K = 3": {"bound": float(chain_mean(guess, chain_bound, "A", 3))}}


def K_by_hand():
    """Return docs/learn.md's example: the pair's costs to three places, and the formula.

    The costs are rounded before they are used, so that a reader who computes with the printed
    costs finds the printed result. Rounded to two places they would give a result that differs
    from the result on docs/speed.md.
    """
    measured = stored("speed-pair")
    races = measured["own"]["races"]["0"]
    rows_ms = {int(n): times["median"] for n, times in measured["passes"]["rows_ms"].items()}
    alpha = round(races["4"]["acceptance"], 3)
    c = round(measured["passes"]["draft_ms"]["median"] / rows_ms[1], 3)
    rows = {}
    for K in range(1, 9):
        # The pass over the K + 1 rows of a round, in passes over one row.
        m = round(rows_ms[K + 1] / rows_ms[1], 3)
        rows[f"K = {K}"] = {"acceptance": alpha, "c": c, "m": m,
                            "tokens": expected_tokens(alpha, K), "time": K * c + m,
                            "speed-up": walltime_improvement(alpha, K, c, m)}
        if str(K) in races:
            rows[f"K = {K}"]["measured"] = races[str(K)]["speedup"]
    return rows


COMPUTED = {"costs": pass_costs, "bundled models": model_sizes,
            "worked round": worked_round, "bound of a chain": chain_bounds,
            "K by hand": K_by_hand}


@cache
def every_table():
    """Return the list of all named tables."""
    tables = [*benchmark_tables()]
    for page in PAGES:
        tables += tables_of_page(page)
    # The other tables are not printed, so they have no caption.
    tables += recorded_tables()
    tables += [Table(name, "", rows()) for name, rows in COMPUTED.items()]
    return tables
