"""Decoders against each other on the same texts, and what the papers' formula says of them.

    text       (ids of the prompt, seed)
    clocks     draft and target with a clock: the seconds of every pass (compare.Timed)
    simulated  real passes of both models with one-hot rows in place of theirs: at each position the
               guess is accepted or not, with probability alpha, decided once for every K
    predicted  Leviathan et al. (2023) Theorem 3.8 with what was measured in the race: acceptance,
               and the medians of a draft step, of a round's target pass, of one row
    counted    the passes of plain decoding / those of this decoder, all their seconds: the speed-up
               if nothing but passes took time
"""

import time
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from benchmarks.clock import spread
from benchmarks.prompts import OPENINGS
from lib.checkpoints.weights import random_params
from lib.demo.compare import Timed
from gpt2 import GPT2
from sampling import one_hot_rows, with_sampling
from speculative import autoregressive_step, draft_and_verify, generate
from theory.speedup import walltime_improvement
from variants.auto import K_MAX, Costs, auto

KS = range(1, 9)
ALPHAS = (0.6, 0.7, 0.8, 0.9)


# ---- running

class Result(NamedTuple):
    """What one decoder did in a race."""

    seconds: list  # of every repeat, all texts together
    rounds: list  # of the first repeat
    draft: list  # seconds of its passes
    target: list


def write(new_step, text, N):
    """The rounds of one text, without their rows of probabilities, which are large."""
    ids, seed = text
    rounds = generate(ids, new_step(), N, np.random.default_rng(seed))
    return [round._replace(p_draft=None, p_target=None) for round in rounds]


def race(new_steps, clocks, texts, N, repeats):
    """{name: Result} of some decoders; `new_steps` is {name: () -> step}.

    They take turns on every text, each with a new step, for some keep a state.
    """
    results = {name: Result([0.0] * repeats, [], [], []) for name in new_steps}
    for repeat in range(repeats):
        for text in texts:
            for name, result in results.items():
                for clock in clocks:
                    clock.seconds.clear()
                start = time.perf_counter()
                rounds = write(new_steps[name], text, N)
                result.seconds[repeat] += time.perf_counter() - start
                result.rounds.extend(rounds if repeat == 0 else [])
                for seen, clock in zip((result.draft, result.target), clocks):
                    seen.extend(clock.seconds)
    return results


def chains(draft, target, Ks):
    """Plain decoding, under 0, and a round of K guesses for every K."""
    steps = {0: partial(autoregressive_step, model=target)} | {
        K: draft_and_verify(draft, target, K) for K in Ks}
    return {K: lambda step=step: step for K, step in steps.items()}


# ---- what comes out

def figures(results):
    """{name: dict} of a race: speed, its spread, acceptance, and the predictions."""
    return {name: speed(result, results[0])
            | (predictions(name, result, results[0]) if name in KS else {})
            for name, result in results.items()}


def speed(result, plain):
    """Tokens a second, and the speed-up over plain decoding: the median of all turns' own."""
    n_ids = sum(len(round.ids) for round in result.rounds)
    return {"tokens_per_s": spread([n_ids / seconds for seconds in result.seconds]),
            "speedup": float(np.median(np.divide(plain.seconds, result.seconds))),
            "acceptance": acceptance(result.rounds),
            "tokens_per_pass": n_ids / len(result.rounds)}


def acceptance(rounds):
    """Kept / examined guesses; None if there were none."""
    examined = sum(round.n_tested for round in rounds)
    return sum(round.n_accepted for round in rounds) / examined if examined else None


def predictions(K, result, plain):
    """The speed-up by formula and by count, and the costs that the formula was given."""
    row = np.median(plain.target)
    c, pass_cost = float(np.median(result.draft) / row), float(np.median(result.target) / row)
    return {"c": c, "pass_cost": pass_cost,
            "predicted": walltime_improvement(acceptance(result.rounds), K, c, pass_cost),
            "counted": sum(plain.target) / sum(result.draft + result.target)}


# ---- the races

@cache
def luck(text, n_positions=2048):
    """Return the uniform number of every position of one text, the same for every alpha and K."""
    return np.random.default_rng(text).random(n_positions)


def simulated(model, alpha):
    """Run the model's passes; return one-hot rows: token 0 with probability alpha, else token 1.

    The token belongs to the position and to the text, which is known by its first token. A guess of
    `simulated(draft, alpha)` is accepted by `simulated(target, 1)` if it is 0, so every K meets the
    same decisions, and the tokens per pass cannot fall as K grows.
    """
    def rows(ids, n_last=1):
        n_vocab = model(ids, n_last).shape[-1]
        drawn = luck(int(ids[0]))[len(ids) - n_last + 1 : len(ids) + 1]
        return one_hot_rows((drawn >= alpha).astype(int), n_vocab)

    return rows


def measure(draft, target, x, repeats=3, clock=time.perf_counter):
    """The Costs of both models after the text x, each the least of some repeats, and the seconds.

    Apart from the texts of the race, which so see what K auto chooses and not how it learns. x must
    leave room for K_MAX + 1 more ids. The repeats are interleaved, so that a slow moment of the
    machine falls on all alike.
    """
    start = clock()

    def seconds(model, lengths, n_last):  # n_last rows wanted, so that many are computed
        began = clock()
        for n in lengths:
            model(x + x[:1] * n, n_last)
        return clock() - began

    for model in (draft, target):
        model(x, 1)
    rounds = [(seconds(draft, range(1, K_MAX + 1), 1) / K_MAX,  # one after the other, as in a round
               [seconds(target, [K + 1], K + 1) for K in range(K_MAX + 1)]) for _ in range(repeats)]
    row = [min(column) for column in zip(*(costs for _, costs in rounds))]
    costs = Costs(min(step for step, _ in rounds) / row[0], [cost / row[0] for cost in row])
    return costs, clock() - start


def simulated_table(draft, target, N, repeats):
    """{alpha: {K: figures}}."""
    clocks, texts, table = [Timed(draft), Timed(target)], [([i] * 32, i) for i in range(3)], {}
    for alpha in ALPHAS:
        steps = chains(simulated(clocks[0], alpha), simulated(clocks[1], 1), KS)
        table[alpha] = figures(race(steps, clocks, texts, N, repeats))
    return table


def prompts(encoder, n_seeds):
    """The openings as texts, each with some seeds."""
    return [(encoder.encode(opening), seed) for opening in OPENINGS for seed in range(n_seeds)]


def own_table(draft, target, encoder, N, repeats, temperature):
    """{K: figures} of a trained pair on its own text; K = "auto" is variants/auto.py.

    Above temperature 0 every K writes texts of its own, lucky or not: four seeds each.
    """
    clocks, texts = [Timed(draft), Timed(target)], prompts(encoder, n_seeds=4 if temperature else 1)
    models = [with_sampling(clock, temperature=temperature) for clock in clocks]
    costs, measuring_s = measure(*models, texts[0][0])
    steps = chains(*models, KS) | {"auto": lambda: auto(*models, costs)}
    table = figures(race(steps, clocks, texts, N, repeats))
    table["auto"]["measuring_s"] = measuring_s
    return table


def useless_table(draft, target, repeats, N=400):
    """{0, "auto": figures} with a draft of random weights: what K auto loses in finding out."""
    noise = GPT2(random_params(sizes(draft), np.random.default_rng(2)), draft.n_head)
    clocks, x = [Timed(noise), Timed(target)], [1] * 8
    models = [with_sampling(clock, temperature=0) for clock in clocks]
    costs, _ = measure(*models, x)
    steps = chains(*models, Ks=[]) | {"auto": lambda: auto(*models, costs)}
    return figures(race(steps, clocks, [(x, 0)], min(N, target.n_ctx - len(x)), repeats))


def sizes(model):
    """A model's hparams."""
    n_ctx, n_embd = model.params["wpe"].shape
    return dict(n_vocab=model.n_vocab, n_ctx=n_ctx, n_embd=n_embd, n_head=model.n_head,
                n_layer=len(model.params["blocks"]))
