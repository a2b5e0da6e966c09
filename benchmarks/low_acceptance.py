"""Plant faults in the bundled draft that leave the text exact, and count accepted guesses.

    python -m benchmarks low_acceptance --json benchmarks/results/low_acceptance.json

    fault      changes what the draft reads, at which temperature it guesses, or how often
    identical  texts at temperature 0 that are the texts of plain decoding

The guesses are tested with the rows they were drawn from, whatever the draft has read, so no
fault changes the distribution of the text (Theorem 1; tests/test_low_acceptance.py enumerates
it). measure/positions.py counts.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gpt2 import GPT2
from lib.markdown import markdown_table, shown
from lib.prefix import common_prefix
from measure import command
from measure.command import ranged
from measure.models import OPENINGS, load_benchmark_pair, named
from measure.positions import PositionCounts, counts_of_race, position_figures
from measure.race import builder, race, race_figures
from sampling import one_hot_rows, with_sampling
from speculative import Guess, guess, make_step

GUESSED = 5  # guesses per round
TEMPERATURES = (0.0, 1.0)
ZERO = 0  # the token in slots of a round that the draft did not fill


# ---- the faults

class WrongCut:
    """Run a draft whose cache is cut at the wrong place after a rejection.

    The cache loses `n_more` tokens more than the rejected guesses. If `n_more` is -1, it loses
    one token less, so one rejected guess stays. Later tokens are appended to what the cache
    holds, as engines do.
    """

    def __init__(self, draft, n_more):
        self.draft = draft
        self.n_more = n_more
        self.text = []  # the tokens that the cache should hold
        self.cached = []  # the tokens that the cache holds

    def __call__(self, ids, n_last=1):
        # Tokens of the last call that are not in the text now are rejected guesses.
        n_same = common_prefix(self.text, ids)
        n_rejected = len(self.text) - n_same
        if n_rejected:
            # At least 0: with n_more = -2, one rejected guess would give -1.
            n_cut = max(n_rejected + self.n_more, 0)
            n_kept = max(len(self.cached) - n_cut, 0)
            self.cached = self.cached[:n_kept]
        self.text = list(ids)
        # Only the new tokens are appended, so a wrong cut is never mended.
        self.cached = self.cached + self.text[n_same:]
        return self.draft(self.cached, n_last)


def reading(draft, change):
    """Return the draft that reads change(ids)."""
    return lambda ids, n_last=1: draft(change(ids), n_last)


def without_prompt(draft):
    """Return the draft that reads only the prompt's last token and the new tokens."""
    n_prompt = None

    def model(ids, n_last=1):
        nonlocal n_prompt
        n_prompt = n_prompt or len(ids)  # the first call reads the prompt alone
        return draft(ids[n_prompt - 1 :], n_last)

    return model


def with_positions(draft, change):
    """Return the draft whose vectors of positions are change(wpe)."""
    return GPT2(draft.params | {"wpe": change(draft.params["wpe"])}, draft.n_head)


def another_tokenizer(draft):
    """Return the draft with permuted ids: the target's token i is order[i] of the draft."""
    order = np.arange(draft.n_vocab)[::-1]
    # The draft reads its own ids, order[ids]. Column order[i] of its rows is for the target's
    # token i, so [:, order] puts the columns into the target's order.
    return lambda ids, n_last=1: draft(order[ids].tolist(), n_last)[:, order]


class Fault(NamedTuple):
    """Hold what is wrong with a draft."""

    model: Callable = lambda draft: draft  # -> a model of logits
    temperature: float | None = None  # of the guesses; None: the target's
    n_drafted: int = GUESSED  # later guesses of a round are ZERO


FAULTS = {
    "none": Fault(),
    "cache cut one token too late": Fault(partial(WrongCut, n_more=-1)),
    "cache cut two tokens too late": Fault(partial(WrongCut, n_more=-2)),
    "cache cut one token too early": Fault(partial(WrongCut, n_more=1)),
    "cache cut two tokens too early": Fault(partial(WrongCut, n_more=2)),
    "input shifted by one": Fault(partial(reading, change=lambda ids: ids[:-1])),
    "positions off by one": Fault(partial(with_positions, change=lambda wpe: wpe[1:])),
    "last 16 tokens visible": Fault(partial(reading, change=lambda ids: ids[-16:])),
    "without the prompt": Fault(without_prompt),
    "draft at temperature 0.3": Fault(temperature=0.3),
    "draft at temperature 2": Fault(temperature=2.0),
    "zero-filled from guess 3 on": Fault(n_drafted=2),
    "another tokenizer": Fault(another_tokenizer),
}


def zero_filled(x, k, rng, make_guesses: Guess, n_drafted, n_vocab):
    """Make n_drafted guesses; fill the round with ZERO, whose rows are one-hot."""
    guesses, p_draft = make_guesses(x, min(k, n_drafted), rng)
    n_empty = k - len(guesses)  # slots that the draft did not fill
    fill = [ZERO] * n_empty
    return guesses + fill, [*p_draft, *one_hot_rows(fill, n_vocab)]


def faulty_step(draft, target, fault: Fault, temperature):
    """Return the step of speculation with a fault in its draft."""
    # Most faults change the model. Two change only the temperature of its guesses.
    T = temperature if fault.temperature is None else fault.temperature
    drafted = partial(guess, draft=with_sampling(fault.model(draft), temperature=T))
    make_guesses = partial(zero_filled, make_guesses=drafted, n_drafted=fault.n_drafted,
                           n_vocab=draft.n_vocab)
    return make_step(with_sampling(target, temperature=temperature), GUESSED, make_guesses)


# ---- counting

def first_guess_counts(runs) -> PositionCounts:  # of two arrays [n_prompts, 2]
    """Count the first guesses of a race's rounds, by the round before them.

    Column 0 counts first guesses after a round with a rejected guess, and column 1 those after
    a round without one.
    """
    counts = PositionCounts(*np.zeros((2, len(runs[0]), 2), int))
    for texts in runs:
        for i, text in enumerate(texts):
            for before, done in pairwise(text.rounds):
                # The last round may have no guess.
                if done.guesses:
                    column = int(before.n_accepted == len(before.guesses))
                    counts.tested[i, column] += 1
                    counts.accepted[i, column] += done.n_accepted > 0
    return counts


def all_figures(args):
    """Return {fault: its figures at each temperature, and its identical texts}."""
    encoder, *pair = load_benchmark_pair("pair")
    texts = [encoder.encode(opening) for opening in OPENINGS]
    rows = {name: {"temperatures": {}} for name in FAULTS}
    for T in TEMPERATURES:
        builders = {name: partial(faulty_step, fault=fault, temperature=T)
                    for name, fault in FAULTS.items()}
        # At temperature 0 every repeat would write the same texts.
        repeats = args.repeats if T else 1
        builders["plain"] = builder(None, {}, T)
        results = race(*pair, builders, texts, args.N, repeats)
        plain = results.pop("plain")
        for name, runs in results.items():
            rows[name]["temperatures"][f"{T:g}"] = {
                "by_position": position_figures(counts_of_race(runs, GUESSED)),
                "first_guess": position_figures(first_guess_counts(runs)),
                "tokens_per_pass": race_figures(runs, plain)["tokens_per_pass"]}
            if T == 0:
                rows[name]["identical"] = sum(
                    text.ids == other.ids for text, other in zip(runs[0], plain[0]))
    return {"texts": named(len(texts), args.N), "repeats": args.repeats, "rows": rows}


# ---- the tables

def acceptance_cells(places):
    """Return the acceptance at each place, with intervals."""
    # Without tested guesses there is no acceptance.
    return [ranged(place, figure="acceptance") if place["tested"] else "-" for place in places]


def paragraphs(figures, args):
    """Yield a sentence and two tables for each temperature."""
    rows = figures["rows"]
    for T in rows["none"]["temperatures"]:
        # Texts at temperature 0 are written once.
        repeats = f", {figures['repeats']} times" if float(T) else ""
        yield (f"Temperature {T}: {figures['texts']}{repeats}, K = {GUESSED}; "
               "acceptance by position, with 90 % intervals:")
        cases = {name: row["temperatures"][T] for name, row in rows.items()}
        guesses = [f"guess {t}" for t in range(1, GUESSED + 1)]
        yield markdown_table(
            ["fault in the draft", *guesses, "tokens/pass", "greedy texts of plain decoding"],
            [[name, *acceptance_cells(case["by_position"]), shown(case["tokens_per_pass"]),
              rows[name]["identical"]] for name, case in cases.items()])
        yield f"Temperature {T}: acceptance of the first guess, by the round before it:"
        yield markdown_table(
            ["fault in the draft", "after a rejection", "after a fully accepted round"],
            [[name, *acceptance_cells(case["first_guess"])] for name, case in cases.items()])


BENCHMARK = command.Benchmark(__doc__, all_figures, paragraphs, repeats=2, N=200)
