"""Race decoders on the same texts, and compute what the papers' formula predicts.

    builder    (draft, target) -> step: a decoder without its models
    simulated  both models run, so times are real, but their rows are replaced by one-hot rows:
               the guess at a position is accepted with probability alpha, whatever K is
    predicted  Leviathan et al. (2023) Theorem 3.8 with what was measured in the race:
               acceptance, and the mean times of a draft step, of a round's target pass, and of
               a pass of plain decoding (means, because a run takes the sum of all passes)

All decoders take turns on every text. Each decoder starts with models that have read nothing, so
the time includes reading the prompt. In repeat r, text i has the seed (r, i), for every decoder.
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
from variants import Models, build, build_plain, entry_of
from wrappers.forced import ForcedRound

WARM_UP = 16  # tokens of every decoder before the race: kernels are compiled, caches filled


# ---- running

class WrittenText(NamedTuple):
    """Hold one text of one decoder."""

    ids: list  # the new tokens
    rounds: list  # without their distributions, which are large
    n_rows: int  # rows of the target in all rounds
    seconds: float
    draft: list  # seconds of each pass
    target: list  # likewise


def builder(name, flags, temperature, **known):
    """Return the builder of a decoder, by name or entry; of plain decoding if the name is None.

    `known` has further fields of Models, such as costs. A draft that is made from the target is
    made once, in the race's warm-up.
    """
    make_draft = entry_of(name).make_draft if name else None
    made = None

    def build_step(draft, target):
        nonlocal made
        if make_draft:  # the draft that the race passes in is not used
            made = made or make_draft(target)
            copy = timed(made.fresh())  # equal weights, an empty cache
            copy.seconds = draft.seconds  # the list that the race reads
            draft = copy
        models = Models(draft, target, {"temperature": temperature}, **known)
        if name is None:
            return build_plain("speculative", models)  # the target alone
        return build(name, models, flags)

    return build_step


def costs_at(temperature, draft, target, ids):
    """Return the Costs of a pair at this temperature."""
    draft_rows = with_sampling(draft, temperature=temperature)
    target_rows = with_sampling(target, temperature=temperature)
    return measure_costs(draft_rows, target_rows, ids)


def write_text(draft, target, build_step, ids, N, seed, stop=()):
    """Return one text as WrittenText, from models that have read nothing."""
    draft, target = timed(draft.fresh()), timed(target.fresh())
    step = build_step(draft, target)  # before the clock starts: it may read a file of heads
    rng = np.random.default_rng(seed)
    new = []
    rounds = []
    n_rows = 0
    start = time.perf_counter()
    for result in generate(ids, step, N, rng, stop):
        new += result.ids
        # The test got one row for each guess, and one more; a forced round has no pass.
        if not isinstance(result, ForcedRound):
            n_rows += len(result.p_target)
        rounds.append(result._replace(p_draft=None, p_target=None))
    seconds = time.perf_counter() - start
    return WrittenText(new, rounds, n_rows, seconds, draft.seconds, target.seconds)


def race(draft, target, builders, texts, N, repeats, stop=()):
    """Return {name: [a list of WrittenText, one per text, for every repeat]}."""
    for build_step in builders.values():  # warm up
        write_text(draft, target, build_step, texts[0], min(N, WARM_UP), 0, stop)
    # One list per repeat; the texts of a repeat are appended in their order.
    results = {name: [[] for _ in range(repeats)] for name in builders}
    turns = list(product(range(repeats), enumerate(texts)))
    for repeat, (i, ids) in tqdm(turns, unit="text", leave=False, disable=None):
        for name, build_step in builders.items():  # all decoders write text i in turn
            written = write_text(draft, target, build_step, ids, N, (repeat, i), stop)
            results[name][repeat].append(written)
    return results


# ---- figures

def race_figures(runs, plain, K=0):
    """Return tokens per second, the speed-up of each repeat's texts, and what was accepted.

    The speed-up is the ratio of tokens per second. K is the number of guesses in each round; with
    K > 0 the speed-up by the formula is returned too.
    """
    texts = list(chain(*runs))  # of all repeats
    rounds = [result for text in texts for result in text.rounds
              if not isinstance(result, ForcedRound)]  # the rounds with a pass
    rates = tokens_per_second(runs)
    # Repeat r is compared with repeat r of plain decoding, which ran at about the same time.
    gains = (rates / tokens_per_second(plain)).tolist()
    found = {"tokens_per_s": spread(rates), "speedup": float(np.median(gains)),
             "slowest": min(gains), "fastest": max(gains),
             "acceptance": acceptance_figures(rounds)["acceptance"],
             "tokens_per_pass": sum(len(text.ids) for text in texts) / len(rounds),
             "rows_per_pass": sum(text.n_rows for text in texts) / len(rounds)}
    if K and found["acceptance"] is not None:
        row_s = mean_seconds(plain, "target")  # plain decoding computes one row per pass
        c = mean_seconds(runs, "draft") / row_s
        pass_cost = mean_seconds(runs, "target") / row_s
        found["predicted"] = walltime_improvement(found["acceptance"], K, c, pass_cost)
    return found


def tokens_per_second(runs):  # -> [repeats]
    """Return the tokens per second of each repeat's texts."""
    return np.array([sum(len(text.ids) for text in texts) / sum(text.seconds for text in texts)
                     for texts in runs])


def text_figures_of_runs(runs):
    """Return the new tokens and the seconds of each text, [repeats, prompts] as lists."""
    return {"tokens": [[len(text.ids) for text in texts] for texts in runs],
            "seconds": [[text.seconds for text in texts] for texts in runs]}


def seconds_per_token(runs):
    """Return the seconds per token in the draft, in the target, and in everything else."""
    texts = list(chain(*runs))  # of all repeats
    n_tokens = sum(len(text.ids) for text in texts)
    seconds = sum(text.seconds for text in texts)
    in_draft = sum(sum(text.draft) for text in texts)
    in_target = sum(sum(text.target) for text in texts)
    return {"draft": in_draft / n_tokens, "target": in_target / n_tokens,
            "rest": (seconds - in_draft - in_target) / n_tokens}


def mean_seconds(runs, role):
    """Return the mean seconds of a pass; `role` is "draft" or "target"."""
    seconds_of_texts = [getattr(text, role) for text in chain(*runs)]
    return float(np.mean(np.concatenate(seconds_of_texts)))


# ---- simulated acceptance

@cache
def uniforms(text, n_positions=2048):
    """Return one uniform number per position of a text, the same for every alpha and K."""
    return np.random.default_rng(text).random(n_positions)


def simulated(model, alpha):
    """Run the model's passes; return one-hot rows: token 0 with probability alpha, or token 1.

    A position of a text has the same token in every run; texts are told apart by their first
    token. A guess of `simulated(draft, alpha)` is accepted by `simulated(target, 1)` if it is 0,
    so the decisions are the same for every K, and the tokens per pass cannot fall as K grows.
    """
    def rows(ids, n_last=1):
        n_vocab = model(ids, n_last).shape[-1]
        # The last row is for position len(ids), which follows all ids.
        first = len(ids) - n_last + 1
        drawn = uniforms(int(ids[0]))[first : len(ids) + 1]
        return one_hot_rows((drawn >= alpha).astype(int), n_vocab)

    return rows


def simulated_builder(K, alpha):
    """Return the builder of rounds of K guesses, each accepted with probability alpha."""
    return lambda draft, target: draft_and_verify(
        simulated(draft, alpha), simulated(target, 1), K)
