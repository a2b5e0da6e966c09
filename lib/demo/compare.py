"""Run two decoders timed, and count what they did: the figures behind main.py.

    Run         one decoding of it: tokens, rounds, seconds
    compare     both runs as one dict; every number in it was measured in this process
"""

import platform
import time
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from lib.backend import products
from lib.demo.costs import Auto
from lib.demo.trace import Recorded, watcher
from sampling import penalize
from speculative import generate
from theory.speedup import walltime_improvement
from variants import DECODERS, Models, build, build_plain
from variants.auto import K_MAX
from variants.shared.long_context import window, windowed
from variants.registry import Rounds


class Timed:
    """A model, the seconds and the rows of each of its passes; all else is the model's own."""

    def __init__(self, model):
        self.model, self.seconds, self.rows = model, [], []

    def __getattr__(self, name):
        return getattr(self.model, name)

    def __call__(self, ids, n_last=1):
        return self.timed(self.model, ids, n_last)

    def hidden(self, ids, n_last=1):
        """As the model's: what decoders with heads call."""
        return self.timed(self.model.hidden, ids, n_last)

    def timed(self, method, ids, n_last):
        start = time.perf_counter()
        result = method(ids, n_last)
        self.seconds.append(time.perf_counter() - start)
        self.rows.append(n_last)
        return result

    def ms(self):
        """The median milliseconds of a pass, or None if there was none."""
        return 1e3 * float(np.median(self.seconds)) if self.seconds else None


class Run(NamedTuple):
    """One decoding and what was seen of it."""

    ids: list  # the new ones
    rounds: list  # without their rows of probabilities, which are large
    seconds: float
    draft: Timed
    target: Timed
    auto: Auto | None  # what --K auto chose and measured


# ---- one run

def is_auto(task):
    """Is the number of guesses to be chosen from what is measured?"""
    return ("auto" in (task.settings.get("K"), task.settings.get("widths"))
            or task.settings.get("costs") == "measured")


def choose_step(task, draft, target):
    """The decoder's step, and if it measures costs what it chooses and measures."""
    if not is_auto(task):
        models = Models(draft, target, task.sampling, task.heads)
        return build(task.decoder, models, task.settings), None
    if task.n_ctx < K_MAX + 2:
        raise ValueError(f"need n_ctx >= {K_MAX + 2} for --K auto, --widths auto or measured "
                         f"costs, got {task.n_ctx}; try a number, such as --K 2")
    chooser = Auto(task, draft, target)
    return chooser.step, chooser


def decode(task, decoder, on_seen=None, n_top=0):
    """Run `autoregressive` or the task's decoder from a cold start, with a bar on a terminal.

    `on_seen` gets every round as data (lib/demo/trace.py) and takes the bar's place.
    """
    draft = task.new_draft and Timed(task.new_draft())
    target = Timed(task.new_target())
    if decoder == "autoregressive":
        models = Models(draft, target, task.sampling)
        step, chooser = build_plain(task.decoder, models, task.settings), None
    else:
        step, chooser = choose_step(task, draft, target)
    if task.window:
        step = windowed(step, len(task.x), task.n_ctx)
    rounds, watched, rng = [], 0.0, np.random.default_rng(task.seed)
    if on_seen:
        rng = Recorded(rng)
        see = watcher_of(task, rng, draft, target, n_top)
    start, disable = time.perf_counter(), True if on_seen else None  # None: only on a terminal
    with tqdm(total=task.n_left, desc=decoder, unit="token", leave=False, disable=disable) as bar:
        for round in generate(task.x, step, task.n_left, rng, task.stop):
            if on_seen:
                looking = time.perf_counter()
                on_seen(see(round))
                watched += time.perf_counter() - looking  # no part of decoding
            rounds.append(round._replace(p_draft=None, p_target=None))
            bar.update(len(round.ids))
    seconds = time.perf_counter() - start - watched + (chooser.reading_s if chooser else 0)
    ids = [token for round in rounds for token in round.ids]
    return Run(ids, rounds, seconds, draft, target, chooser)


def watcher_of(task, rng, draft, target, n_top):
    """The `see` of lib/demo/trace.py for this task's decoder."""
    models = {"draft": draft, "target": target}
    clocks = {name: model.seconds for name, model in models.items() if model}
    known = Rounds() if task.is_tree else DECODERS[task.decoder].rounds
    return watcher(task.encoder, rng, known, clocks, n_top)


def warm_up(task):
    """Products compiled and one short pass of each model, so that no run pays for them."""
    K = K_MAX if is_auto(task) else task.settings.get("K", products.GROUP)
    for new_model in filter(None, (task.new_draft, task.new_target)):
        model = new_model()
        products.warm_up(products.GROUP if task.is_tree else K + 1, model.cache.dtype)
        model(task.x[:1])


# ---- both runs

def compare(task, on_seen=None, n_top=0):
    """Plain decoding and the task's decoder, and all that can be said of both.

    Returns
    -------
    dict
        JSON-able. Times are seconds or milliseconds as their names say; None where nothing was
        there to measure.
    """
    warm_up(task)
    plain, fast = decode(task, "autoregressive"), decode(task, task.decoder, on_seen, n_top)
    numbers = {
        "prompt": task.encoder.decode(task.x),
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "product": products.name(),
        "exact": bool(DECODERS[task.decoder].exact(task.settings)),
        "n_ctx": task.n_ctx,
        "window_moved": len(task.x) + max(len(plain.ids), len(fast.ids)) > task.n_ctx,
        "autoregressive": text_figures(task, plain),
        task.decoder: text_figures(task, fast),
        "target_passes": len(fast.target.rows),
        "tokens_per_target_pass": ratio(len(fast.ids), len(fast.target.rows)),
        "rows_per_target_pass": ratio(sum(fast.target.rows), len(fast.target.rows)),
        **acceptance_figures(task, fast),
        "draft_ms": fast.draft.ms() if fast.draft else None,
        "target_ms": plain.target.ms(),
        "target_pass_ms": fast.target.ms(),
        "speedup_measured": ratio(plain.seconds, fast.seconds),
    }
    numbers["speedup_predicted"] = predict(task, plain, fast, numbers["acceptance"])
    if fast.auto and fast.auto.chosen:
        numbers |= {"mean_K": float(np.mean(fast.auto.chosen)),
                    "measuring_s": fast.auto.measuring_s, "costs_known": bool(fast.auto.known)}
    greedy = task.sampling["temperature"] == 0
    if greedy or DECODERS[task.decoder].plain:
        numbers["identical"] = plain.ids == fast.ids
        if greedy and plain.ids != fast.ids:
            numbers["first_difference"] = first_difference(task, plain.ids, fast.ids)
    return numbers


def text_figures(task, run):
    """Time and text of one run, and what ended it: N, a stop token or n_ctx."""
    stopped = run.ids and run.ids[-1] in task.stop
    return {"time_s": run.seconds, "tokens": len(run.ids),
            "tokens_per_second": ratio(len(run.ids), run.seconds),
            "ended_by": "stop" if stopped else "N" if len(run.ids) == task.N else "n_ctx",
            "text": task.encoder.decode(task.x + run.ids), "ids": run.ids}


def acceptance_figures(task, run):
    """Accepted and tested guesses; None where the guesses are a tree, whose nodes are rivals."""
    if task.is_tree:
        return {"accepted": None, "tested": None, "acceptance": None}
    accepted = sum(round.n_accepted for round in run.rounds)
    tested = sum(round.n_tested for round in run.rounds)
    return {"accepted": accepted, "tested": tested, "acceptance": ratio(accepted, tested)}


def ratio(a, b):
    """a / b, or None if b is 0."""
    return a / b if b else None


def predict(task, plain, fast, alpha):
    """Leviathan et al. (2023) Theorem 3.8 with the acceptance and the costs of this very run.

    None where it does not speak of the decoder: rounds of another number of guesses, or a tree.
    """
    K, guesses = task.settings.get("K"), sum(len(round.guesses) for round in fast.rounds)
    if alpha is None or not fast.draft or not always_K(fast.rounds, K, task.n_left):
        return None
    row, per_guess = plain.target.ms(), fast.draft.ms() * len(fast.draft.seconds) / guesses
    return walltime_improvement(alpha, K, c=per_guess / row, pass_cost=fast.target.ms() / row)


def always_K(rounds, K, n_left):
    """Did every round guess K tokens, or as many as there was room for, and one of them K?"""
    if K not in {len(round.guesses) for round in rounds}:
        return False
    for round in rounds:
        if len(round.guesses) != min(K, n_left - 1):
            return False
        n_left -= len(round.ids)
    return True


def first_difference(task, a, b):
    """Where two greedy texts part, and how close the two best logits were there."""
    n = next((i for i, (one, other) in enumerate(zip(a, b)) if one != other), min(len(a), len(b)))
    x = window(task.x + a[:n], len(task.x), task.n_ctx)  # without --window: all of it
    rows = np.asarray(task.new_target()(x), dtype=np.float64)
    (logits,) = np.sort(penalize(rows, x, task.sampling.get("repetition_penalty", 1.0)))
    return {"token": n, "gap_of_the_two_best_logits": float(logits[-1] - logits[-2])}
