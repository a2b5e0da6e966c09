"""Race decoders on the same texts, and compute what the papers' formula predicts.

    builder    (draft, target) -> step: a decoder without its models
    runs       of one decoder: a list of a Run per text for each repeat, [repeats][texts]
    simulated  acceptance: both models run their passes, so times are real, but one-hot rows
               replace their rows. A guess is then accepted with a given probability alpha
    predicted  the speed-up by Leviathan et al. (2023) Theorem 3.8, from figures of the race:
               the acceptance, and the mean times of a draft pass, of a round's target pass and
               of a pass of plain decoding. Means count, because a run takes the sum of all
               passes

All decoders take turns on every text. Each decoder starts with models that have read nothing.
The first round reads the prompt, so its time is the prompt's; speeds, speed-ups and times of
passes are those of the writing after it. In repeat r, text i has the seed (r, i), for every
decoder.
"""

import time
from functools import cache
from itertools import chain

import numpy as np
from tqdm import tqdm

from lib.terminal import notify
from measure.clock import spread
from measure.costs import measure_costs
from measure.passes import Run, Timed, acceptance_figures, quotient
from sampling import one_hot_rows, with_sampling
from speculative import draft_and_verify, generate
from theory.speedup import walltime_improvement
from variants import Models, build, build_plain, entry_of
from wrappers.forced import ForcedRound

WARM_UP = 16  # tokens of every decoder before the race: kernels are compiled, caches filled


# ---- running

def builder(name, flags, temperature, **known):
    """Return the builder of a decoder, by name or entry; of plain decoding if the name is None.

    `known` has further fields of Models, such as costs. Some decoders make their draft from the
    target: it is made once, in the race's warm-up.
    """
    entry = entry_of(name or "speculative")
    make_draft = entry.draft_maker(entry.settings(dict(flags))) if name else None
    made = None  # the draft of `make_draft`, after the first call of `build_step`

    def build_step(draft, target):
        nonlocal made
        # The made draft, with an empty cache, replaces the race's `draft`. write_text reads the
        # seconds of the race's, so the made draft writes into the same list.
        if make_draft:
            made = made or make_draft(target, notify)
            replacement = Timed(made.fresh())
            replacement.seconds = draft.seconds
            draft = replacement
        models = Models(draft, target, {"temperature": temperature}, **known)
        if name is None:
            return build_plain("speculative", models)
        return build(name, models, flags)

    return build_step


def costs_at(temperature, draft, target, ids):
    """Return the Costs of a pair at this temperature."""
    draft_rows = with_sampling(draft, temperature=temperature)
    target_rows = with_sampling(target, temperature=temperature)
    return measure_costs(draft_rows, target_rows, ids)


def write_text(draft, target, build_step, ids, N, seed, stop=()):
    """Return one text as a Run, from models that have read nothing."""
    draft = Timed(draft.fresh())
    target = Timed(target.fresh())
    # The step is built before the clock starts, because some decoders read a file of heads.
    step = build_step(draft, target)
    run = Run(draft, target)
    start = time.perf_counter()
    for result in generate(ids, step, N, np.random.default_rng(seed), stop):
        run.add(result, time.perf_counter() - start)
        start = time.perf_counter()
    # A race keeps many texts, and so no model with its cache.
    draft.model = target.model = None
    return run


def race(draft, target, builders, texts, N, repeats, stop=(), title=None):
    """Return {name: the runs of a decoder}; show a bar of texts on a terminal."""
    n_texts = len(builders) * (1 + repeats * len(texts))  # with those of the warm-up
    results = {name: [[] for _ in range(repeats)] for name in builders}
    with tqdm(total=n_texts, desc=title, unit="text", leave=False, disable=None) as bar:
        # The warm-up: no time of these texts counts.
        for build_step in builders.values():
            write_text(draft, target, build_step, texts[0], min(N, WARM_UP), 0, stop)
            bar.update()
        for repeat in range(repeats):
            for i, ids in enumerate(texts):
                for name, build_step in builders.items():
                    run = write_text(draft, target, build_step, ids, N, (repeat, i), stop)
                    results[name][repeat].append(run)
                    bar.update()
    return results


# ---- figures

def race_figures(runs, plain, K=0):
    """Return tokens per second, the speed-up over plain decoding, and what was accepted.

    The speed-up is the ratio of tokens per second: the median of the repeats, and the least and
    the largest, "low" and "high". `plain` has the runs of plain decoding. K is the number of
    guesses in each round; with K > 0 the speed-up by the formula is returned too.
    """
    texts = list(chain(*runs))  # of all repeats
    every_round = [result for text in texts for result in text.rounds]
    # Forced rounds have no pass, so they do not count in figures per pass.
    rounds = [result for result in every_round if not isinstance(result, ForcedRound)]
    rates = tokens_per_second(runs)
    # Repeat r is compared with repeat r of plain decoding, which ran at about the same time.
    gains = (rates / tokens_per_second(plain)).tolist()
    alpha = acceptance_figures(rounds)["acceptance"]
    figures = {"tokens_per_s": spread(rates),
               "speedup": float(np.median(gains)), "low": min(gains), "high": max(gains),
               "speedup_with_prompt": float(np.median(rates_with_prompt(runs)
                                                      / rates_with_prompt(plain))),
               "acceptance": alpha,
               "tokens_per_pass": sum(len(text.ids) for text in texts) / len(rounds),
               "rows_per_pass": sum(sum(text.target.rows) for text in texts) / len(rounds)}
    if K and alpha is not None:
        # Plain decoding computes one row per pass. Its pass is the unit of both costs.
        row_s = mean_seconds(plain, "target")
        draft_s = mean_seconds(runs, "draft")
        pass_s = mean_seconds(runs, "target")
        if None not in (row_s, draft_s, pass_s):  # None if no text had a second round
            figures["predicted"] = walltime_improvement(alpha, K, draft_s / row_s,
                                                        pass_s / row_s)
    return figures


def same_texts(runs, plain):
    """Return how many texts of the first repeat are plain decoding's, such as "5 of 6"."""
    n_same = sum(text.ids == other.ids for text, other in zip(runs[0], plain[0]))
    return f"{n_same} of {len(plain[0])}"


def tokens_per_second(runs):  # -> [repeats]
    """Return the tokens per second of each repeat: all written tokens / all their seconds."""
    n_tokens = [sum(text.n_written for text in texts) for texts in runs]
    seconds = [sum(text.writing_s for text in texts) for texts in runs]
    # None, of texts of one round, becomes NaN.
    return np.array([quotient(n, s) for n, s in zip(n_tokens, seconds)], float)


def rates_with_prompt(runs):  # -> [repeats]
    """Return the tokens per second of each repeat, the prompts' rounds included."""
    return np.array([sum(len(text.ids) for text in texts) / sum(text.seconds for text in texts)
                     for texts in runs])


def text_figures_of_runs(runs):
    """Return each text's written tokens and their seconds, [repeats, prompts] as lists."""
    return {"tokens": [[text.n_written for text in texts] for texts in runs],
            "seconds": [[text.writing_s for text in texts] for texts in runs]}


def seconds_of_parts(runs):
    """Return the seconds after the prompts in the draft, in the target, and in the rest."""
    texts = list(chain(*runs))  # of all repeats
    seconds = sum(text.writing_s for text in texts)
    in_draft = sum(sum(text.draft.writing()) for text in texts)
    in_target = sum(sum(text.target.writing()) for text in texts)
    return {"draft": in_draft, "target": in_target, "rest": seconds - in_draft - in_target}


def mean_seconds(runs, role):
    """Return the mean seconds of a pass, or None; `role` is "draft" or "target"."""
    seconds = [each for text in chain(*runs) for each in getattr(text, role).writing()]
    return quotient(sum(seconds), len(seconds))


# ---- simulated acceptance

@cache
def uniforms(text, n_positions=2048):
    """Return one uniform number per position of a text; `text` is its number, the seed."""
    return np.random.default_rng(text).random(n_positions)


def simulated(model, alpha):
    """Return a model that runs the passes of `model`, but whose rows are one-hot.

    The row of a position holds token 0 with probability alpha, otherwise token 1. It depends on
    the position's uniform number u alone: token 0 if u < alpha. The first token of a text is
    its number, so texts differ.

    `simulated(target, 1)` writes token 0 everywhere, so it accepts a guess of
    `simulated(draft, alpha)` if this guess is token 0. Example: alpha = 0.8 and u = 0.3, 0.5,
    0.9 at three positions. The guesses are 0, 0, 1, so the first two are accepted and the third
    is not. K does not change u, so a round with a larger K never ends at an earlier position,
    and the tokens per pass cannot fall as K grows.
    """
    def rows(ids, n_last=1):
        """Run the pass; return the one-hot rows."""
        n_vocab = model(ids, n_last).shape[-1]
        # The last row is for position len(ids), which follows all ids. The first row is for the
        # position n_last - 1 before it.
        last = len(ids)
        first = last - (n_last - 1)
        text = int(ids[0])
        u = uniforms(text)[first : last + 1]
        tokens = (u >= alpha).astype(int)  # False is token 0, True is token 1
        return one_hot_rows(tokens, n_vocab)

    return rows


def simulated_builder(K, alpha):
    """Return the builder of rounds of K guesses, each accepted with probability alpha."""
    return lambda draft, target: draft_and_verify(
        simulated(draft, alpha), simulated(target, 1), K)
