"""Race decoders on the same texts, and compute what the papers' formula predicts.

    builder    (draft, target) -> step: a decoder without its models
    simulated  real passes of both models, but one-hot rows instead of theirs: at each position
               the guess is accepted with probability alpha, decided once for every K
    predicted  Leviathan et al. (2023) Theorem 3.8 with what was measured in the race:
               acceptance, and the means of a draft step, of a round's target pass, of one row;
               the sum of all passes is what a run takes, and means keep it (medians do not)

All decoders take turns on every text. Each starts with models that have read nothing, so the
time includes reading the prompt. In repeat r, text i has the seed (r, i), for every decoder.
"""

import time
from functools import cache
from itertools import chain, product
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from demo.clock import spread
from demo.compare import acceptance_figures, timed
from demo.costs import measure_costs
from sampling import one_hot_rows, with_sampling
from speculative import draft_and_verify, generate
from theory.speedup import walltime_improvement
from variants import DECODERS, Models, build, build_plain

WARM_UP = 16  # tokens of every decoder before the race: kernels are compiled, caches filled


# ---- running

class Written(NamedTuple):
    """Hold one text of one decoder."""

    ids: list  # the new ones
    rounds: list  # without their distributions, which are large
    n_rows: int  # of the target, that all rounds computed
    seconds: float
    draft: list  # seconds of its passes
    target: list


def builder(name, flags, temperature, **known):
    """Return the builder of a registered decoder; of plain decoding if the name is None.

    A draft that is made from the target is made once, in the race's warm-up.
    """
    make_draft = name and DECODERS[name].make_draft
    made = None

    def build_step(draft, target):
        nonlocal made
        if make_draft:
            made = made or make_draft(target)
            draft = made.fresh()
        models = Models(draft, target, {"temperature": temperature}, **known)
        return build(name, models, flags) if name else build_plain("speculative", models)

    return build_step


def costs_at(temperature, draft, target, ids):
    """Return the Costs of a pair at this temperature."""
    rows = (with_sampling(model, temperature=temperature) for model in (draft, target))
    return measure_costs(*rows, ids)


def write_text(draft, target, build_step, ids, N, seed):
    """Return one text as Written, from models that have read nothing."""
    draft, target = timed(draft.fresh()), timed(target.fresh())
    step = build_step(draft, target)  # before the clock starts: it may read a file of heads
    rng = np.random.default_rng(seed)
    new = []
    rounds = []
    n_rows = 0
    start = time.perf_counter()
    for result in generate(ids, step, N, rng):
        new += result.ids
        n_rows += len(result.p_target)
        rounds.append(result._replace(p_draft=None, p_target=None))
    seconds = time.perf_counter() - start
    return Written(new, rounds, n_rows, seconds, draft.seconds, target.seconds)


def race(draft, target, builders, texts, N, repeats):
    """Return {name: [a list of Written, one per text, for every repeat]}; see above."""
    for build_step in builders.values():
        write_text(draft, target, build_step, texts[0], min(N, WARM_UP), 0)
    results = {name: [[] for _ in range(repeats)] for name in builders}
    turns = list(product(range(repeats), enumerate(texts)))
    for repeat, (i, ids) in tqdm(turns, unit="text", leave=False, disable=None):
        for name, build_step in builders.items():
            written = write_text(draft, target, build_step, ids, N, (repeat, i))
            results[name][repeat].append(written)
    return results


# ---- figures

def race_figures(runs, plain, K=0):
    """Return tokens per second, the speed-up of each repeat's texts, and what was accepted.

    The speed-up is the ratio of tokens per second. With K, a round of K guesses, also the
    speed-up by the formula.
    """
    texts = list(chain(*runs))
    rounds = [result for text in texts for result in text.rounds]
    rates = tokens_per_second(runs)
    gains = (rates / tokens_per_second(plain)).tolist()
    found = {"tokens_per_s": spread(rates), "speedup": float(np.median(gains)),
             "slowest": min(gains), "fastest": max(gains),
             "acceptance": acceptance_figures(rounds)["acceptance"],
             "tokens_per_pass": sum(len(text.ids) for text in texts) / len(rounds),
             "rows_per_pass": sum(text.n_rows for text in texts) / len(rounds)}
    if K and found["acceptance"] is not None:
        row = mean_seconds(plain, "target")
        c = mean_seconds(runs, "draft") / row
        pass_cost = mean_seconds(runs, "target") / row
        found["predicted"] = walltime_improvement(found["acceptance"], K, c, pass_cost)
    return found


def tokens_per_second(runs):  # -> [repeats]
    """Return the tokens per second of each repeat's texts."""
    return np.array([sum(len(text.ids) for text in texts) / sum(text.seconds for text in texts)
                     for texts in runs])


def mean_seconds(runs, role):
    """Return the mean seconds of a pass of the draft or the target, as `role` says."""
    return float(np.mean(np.concatenate([getattr(text, role) for text in chain(*runs)])))


# ---- simulated acceptance

@cache
def uniforms(text, n_positions=2048):
    """Return a text's uniform number of every position, the same for every alpha and K."""
    return np.random.default_rng(text).random(n_positions)


def simulated(model, alpha):
    """Run the model's passes; return one-hot rows: token 0 with probability alpha, or token 1.

    The token belongs to the position and to the text, which its first token identifies. A
    guess of `simulated(draft, alpha)` is accepted by `simulated(target, 1)` if it is 0, so the
    decisions are the same for every K, and the tokens per pass cannot fall as K grows.
    """
    def rows(ids, n_last=1):
        n_vocab = model(ids, n_last).shape[-1]
        # row i of the last n_last is for the position after its token
        drawn = uniforms(int(ids[0]))[len(ids) - n_last + 1 : len(ids) + 1]
        return one_hot_rows((drawn >= alpha).astype(int), n_vocab)

    return rows


def simulated_builder(K, alpha):
    """Return the builder of rounds of K guesses, each accepted with probability alpha."""
    return lambda draft, target: draft_and_verify(
        simulated(draft, alpha), simulated(target, 1), K)
