"""Plant faults in the bundled draft that leave the text exact, and count accepted guesses.

    python -m benchmarks low_acceptance --json benchmarks/results/low_acceptance.json
    python -m benchmarks low_acceptance --show benchmarks/results/low_acceptance.json

    fault      changes what the draft reads, at which temperature it guesses, or how often
    identical  texts at temperature 0 that are the texts of plain decoding
    distance   total variation between the texts of speculation with the fault and the target's
               texts at temperature 1, enumerated for a random GPT-2 of two tokens

The guesses are tested with the rows they were drawn from, whatever the draft has read, so no
fault changes the distribution of the text (Theorem 1). measure/positions.py counts.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from exact.law import law, text_law, total_variation
from gpt2 import GPT2
from lib.backend import products
from lib.checkpoints.weights import cut_params, n_params
from lib.markdown import markdown_table
from lib.prefix import common_prefix
from lib.terminal import notify
from measure import command
from measure.command import number
from measure.models import OPENINGS, load_benchmark_pair, named
from measure.positions import (
    PositionCounts,
    counts_from_lists,
    counts_of_text,
    position_figures,
)
from sampling import one_hot_rows, with_sampling
from speculative import Guess, autoregressive_sampling, complete, generate, guess, make_step
from utils import MODELS_DIR
from variants import Models, build

GUESSED = 5  # guesses per round
TEMPERATURES = (0.0, 1.0)
ZERO = 0  # the token in slots of a round that the draft did not fill
PROMPT_LENGTH = 130  # of the enumeration: longer than every window, and beyond position 128
N_ENUMERATED = 4  # tokens: a round of three guesses, or a rejection and rounds after it
EAGLE = "EAGLE's head, without a fault"
ROUNDING = 1e-12  # a smaller distance is floating-point error


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


def healthy(draft, n_prompt):
    """Return the draft itself."""
    return draft


def cut_wrongly(draft, n_prompt, n_more):
    """Return the draft with a cache that is cut at the wrong place."""
    return WrongCut(draft, n_more)


def shifted_input(draft, n_prompt):
    """Return the draft that does not read the last token."""
    return lambda ids, n_last=1: draft(ids[:-1], n_last)


def shifted_positions(draft, n_prompt):
    """Return the draft whose first position is 1 instead of 0."""
    return GPT2(draft.params | {"wpe": draft.params["wpe"][1:]}, draft.n_head)


def untrained_positions(draft, n_prompt, first):
    """Return the draft with zeros as the vectors of the positions from `first` on.

    Vectors of positions that were never trained are near 0.
    """
    wpe = draft.params["wpe"].copy()
    wpe[first:] = 0
    return GPT2(draft.params | {"wpe": wpe}, draft.n_head)


def short_window(draft, n_prompt, n_visible):
    """Return the draft that reads the last n_visible tokens."""
    return lambda ids, n_last=1: draft(ids[-n_visible:], n_last)


def without_prompt(draft, n_prompt):
    """Return the draft that reads only the prompt's last token and the new tokens."""
    return lambda ids, n_last=1: draft(ids[n_prompt - 1 :], n_last)


def another_tokenizer(draft, n_prompt):
    """Return the draft with permuted ids: the target's token i is order[i] of the draft."""
    order = np.arange(draft.n_vocab)[::-1]
    # The draft reads its own ids, order[ids]. Column order[i] of its rows is for the target's
    # token i, so [:, order] puts the columns into the target's order.
    return lambda ids, n_last=1: draft(order[ids].tolist(), n_last)[:, order]


class Fault(NamedTuple):
    """Hold what is wrong with a draft."""

    model: Callable = healthy  # (draft, n_prompt) -> a model of logits
    temperature: float | None = None  # of the guesses; None: the target's
    n_drafted: int = GUESSED  # later guesses of a round are ZERO


FAULTS = {
    "none": Fault(),
    "cache cut one token too late": Fault(partial(cut_wrongly, n_more=-1)),
    "cache cut two tokens too late": Fault(partial(cut_wrongly, n_more=-2)),
    "cache cut one token too early": Fault(partial(cut_wrongly, n_more=1)),
    "cache cut two tokens too early": Fault(partial(cut_wrongly, n_more=2)),
    "input shifted by one": Fault(shifted_input),
    "positions off by one": Fault(shifted_positions),
    "positions from 128 on untrained": Fault(partial(untrained_positions, first=128)),
    "last 16 tokens visible": Fault(partial(short_window, n_visible=16)),
    "last 4 tokens visible": Fault(partial(short_window, n_visible=4)),
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


def faulty_step(fault: Fault, draft, target, temperature, n_prompt):
    """Return the step of speculation with a fault in its draft."""
    # Most faults change the model. Two change only the temperature of its guesses.
    T = temperature if fault.temperature is None else fault.temperature
    rows = with_sampling(fault.model(draft, n_prompt), temperature=T)
    drafted = partial(guess, draft=rows)
    make_guesses = partial(zero_filled, make_guesses=drafted, n_drafted=fault.n_drafted,
                           n_vocab=draft.n_vocab)
    return make_step(with_sampling(target, temperature=temperature), GUESSED, make_guesses)


def eagle_step(draft, target, temperature, n_prompt):
    """Return the step of EAGLE's head, which replaces the draft and is not a fault."""
    models = Models(draft, target, {"temperature": temperature}, MODELS_DIR / "tales-large")
    return build("eagle", models, {"K": GUESSED})


# ---- counting

def written_rounds(make_step_of, pair, ids, temperature, N, seed):
    """Return the rounds of one text, without their rows, which are large."""
    # Fresh models have empty caches.
    draft, target = (model.fresh() for model in pair)
    step = make_step_of(draft, target, temperature, len(ids))
    rng = np.random.default_rng(seed)
    return [done._replace(p_draft=None, p_target=None) for done in generate(ids, step, N, rng)]


def first_guess_counts(rounds):  # -> [2, 2]
    """Return how many first guesses were tested and accepted, by the round before them.

    counts[0] are tested guesses, counts[1] accepted ones. Column 0 counts first guesses after a
    round with a rejected guess, and column 1 those after a round without one.
    """
    counts = np.zeros((2, 2), int)
    for before, done in pairwise(rounds):
        # The last round may have no guess.
        if done.guesses:
            all_accepted = before.n_accepted == len(before.guesses)
            column = int(all_accepted)
            counts[0, column] += 1
            counts[1, column] += done.n_accepted > 0
    return counts


def counted_texts(make_step_of, pair, texts, temperature, args) -> tuple[dict, list]:
    """Return the counts of all texts at one temperature, and the new tokens of each text."""
    # At temperature 0 every repeat would write the same texts.
    repeats = args.repeats if temperature else 1
    # The first axis of both arrays: 0 counts tested guesses, 1 accepted guesses.
    by_position = np.zeros((2, len(texts), GUESSED), int)
    first_guess = np.zeros((2, len(texts), 2), int)
    new = []
    n_rounds = 0
    for i, ids in enumerate(texts):
        for r in range(repeats):
            # The seed (r, i) is the same for every fault.
            rounds = written_rounds(make_step_of, pair, ids, temperature, args.N, (r, i))
            by_position[:, i] += counts_of_text(rounds, GUESSED)
            first_guess[:, i] += first_guess_counts(rounds)
            n_rounds += len(rounds)
            new.append([token for done in rounds for token in done.ids])
    figures = {"by_position": PositionCounts(*by_position).as_lists(),
               "first_guess": PositionCounts(*first_guess).as_lists(),
               "tokens_per_pass": sum(map(len, new)) / n_rounds}
    return figures, new


# ---- whether the text stays exact

def two_token_model(seed):
    """Return a random GPT-2 of two tokens, whose weights are so large that its rows differ."""
    hparams = dict(n_vocab=2, n_ctx=192, n_embd=6, n_head=2, n_layer=1)
    flat = np.random.default_rng(seed).standard_normal(n_params(hparams))
    return GPT2(cut_params(flat, hparams), hparams["n_head"])


def text_distance(fault: Fault) -> float:
    """Return the total variation between the texts of a fault and the target's, enumerated."""
    # Numba compiles now. Compiled inside `law` below, it would draw random numbers there.
    products.warm_up(np.float64, notify)
    draft = two_token_model(0)
    target = two_token_model(1)
    prompt = np.random.default_rng(2).integers(2, size=PROMPT_LENGTH).tolist()

    def text(rng):
        """Write one text; `law` calls this once for each way in which the draws can fall."""
        # Each text has a new step, because a cache that is cut wrongly depends on earlier
        # texts.
        step = faulty_step(fault, draft.fresh(), target.fresh(), 1.0, len(prompt))
        return complete(prompt, step, N_ENUMERATED, rng)

    wanted = text_law(prompt, with_sampling(target, temperature=1.0), N_ENUMERATED)
    return float(total_variation(law(text), wanted))


# ---- the command

def all_figures(args):
    """Return {fault: its counts at each temperature, and whether its texts are exact}."""
    encoder, *pair = load_benchmark_pair("pair")
    texts = [encoder.encode(opening) for opening in OPENINGS]
    greedy = with_sampling(pair[1], temperature=0.0)
    # The new tokens of plain decoding; greedy texts do not depend on rng.
    rng = np.random.default_rng(0)
    plain = [autoregressive_sampling(ids, greedy, args.N, rng)[len(ids) :] for ids in texts]
    steps = {name: partial(faulty_step, fault) for name, fault in FAULTS.items()}
    steps[EAGLE] = eagle_step
    rows = {}
    for name, make_step_of in tqdm(steps.items(), unit="fault", leave=False, disable=None):
        cases = {}
        for T in TEMPERATURES:
            cases[f"{T:g}"], new = counted_texts(make_step_of, pair, texts, T, args)
            # Only greedy texts can be compared with `plain`. 0 is one of TEMPERATURES.
            if T == 0:
                n_identical = sum(text == other for text, other in zip(new, plain))
        rows[name] = {"temperatures": cases, "identical": n_identical}
        # tests/test_laws.py enumerates EAGLE's head, so it has no distance here.
        if name in FAULTS:
            rows[name]["distance"] = text_distance(FAULTS[name])
    return {"texts": named(len(texts), args.N), "repeats": args.repeats, "rows": rows}


def exact_cell(row, n_texts):
    """Return whether all texts of a row are exact, as a cell.

    >>> exact_cell({"identical": 6, "distance": 1e-15}, 6)
    'yes'
    >>> exact_cell({"identical": 5, "distance": 0.01}, 6)
    'no: 5 of 6 texts, distance 0.0100'
    """
    distance = row.get("distance", 0.0)
    if row["identical"] == n_texts and distance < ROUNDING:
        return "yes"
    return f"no: {row['identical']} of {n_texts} texts, distance {distance:.4f}"


def acceptance_cells(lists):
    """Return the acceptance in each column of some counts, with intervals."""
    cells = []
    for place in position_figures(counts_from_lists(lists)):
        # Without tested guesses there is no acceptance.
        if place["tested"]:
            interval = f"({place['low']:.2f} - {place['high']:.2f})"
            cells.append(f"{place['acceptance']:.2f} {interval}")
        else:
            cells.append("-")
    return cells


def paragraphs(figures, args):
    """Yield a sentence and two tables for each temperature."""
    rows = figures["rows"]
    # All rows have the same temperatures, so the first row has them all.
    first_row = next(iter(rows.values()))
    for T in first_row["temperatures"]:
        # Texts at temperature 0 are written once.
        repeats = f", {figures['repeats']} times" if float(T) else ""
        yield (f"Temperature {T}: {figures['texts']}{repeats}, K = {GUESSED}; "
               "acceptance by position, with 90 % intervals:")
        lines = []  # of the table by position
        first_lines = []  # of the table of first guesses
        for name, row in rows.items():
            case = row["temperatures"][T]
            n_texts = len(case["by_position"]["tested"])
            lines.append([name, *acceptance_cells(case["by_position"]),
                          number(case["tokens_per_pass"]), exact_cell(row, n_texts)])
            first_lines.append([name, *acceptance_cells(case["first_guess"])])
        guesses = [f"guess {t}" for t in range(1, GUESSED + 1)]
        yield markdown_table(["fault in the draft", *guesses, "tokens/pass", "text exact"],
                             lines)
        yield f"Temperature {T}: acceptance of the first guess, by the round before it:"
        yield markdown_table(["fault in the draft", "after a rejection",
                              "after a fully accepted round"], first_lines)


def add_flags(parser):
    """Add the flags of this table."""
    parser.set_defaults(N=200)


BENCHMARK = command.Benchmark(__doc__, all_figures, paragraphs, repeats=2, add_flags=add_flags)
