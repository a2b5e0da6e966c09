"""Run one decoder on a task, its passes timed."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from lib.backend import products
from lib.terminal import notify
from measure.passes import Timed, timed
from run.task import Task
from speculative import Round, Step, generate
from variants import Models, build_plain
from wrappers.window import window, windowed


class Run(NamedTuple):
    """Hold one run of a decoder and its measurements."""

    ids: list[int]  # the new tokens
    rounds: list[Round]  # without their rows of probabilities, which are large
    seconds: float
    draft: Timed | None
    target: Timed


def decoded_run(task: Task, decoder: str, on_seen: Callable[[dict], Any] | None = None) -> Run:
    """Run `autoregressive` or the task's decoder with empty caches; show a bar on a terminal.

    `on_seen` receives every round as data (run/rounds.py), with "end", the seconds since the
    start, and "n_left", the tokens wanted before the round. A run with `on_seen` shows no bar.
    """
    models = task.models()
    # The step calls these models, and they record the times of their passes.
    draft = timed(models.draft) if models.draft else None
    target = timed(models.target)
    models = models._replace(draft=draft, target=target)
    step = step_of_run(task, decoder, models)
    rng: Any = np.random.default_rng(task.seed)
    if on_seen:
        from run.rounds import Recorded, watcher  # only a run that is shown needs them
        # `target.seconds` grows by one entry per pass. Numbers drawn before the pass are the
        # guess's, numbers drawn after it are the test's.
        rng = Recorded(rng, target.seconds)
        clocks = {"target": target.seconds}
        if draft:
            clocks["draft"] = draft.seconds
        see = watcher(task.encoder, rng, task.entry.test, clocks)
    rounds = []
    n_left = task.n_new  # for `on_seen`; `generate` counts by itself
    seconds = 0.0
    # tqdm reads True as "no bar", and None as "a bar on a terminal only".
    hides_bar = True if on_seen else None
    start = time.perf_counter()
    with tqdm(total=task.n_new, desc=decoder, unit="token", leave=False,
              disable=hides_bar) as bar:
        for result in generate(task.x, step, task.n_new, rng, task.stop):
            seconds += time.perf_counter() - start
            if on_seen:
                seen = see(result)
                on_seen(seen | {"end": seconds, "n_left": n_left})
            n_left -= len(result.ids)
            rounds.append(result._replace(p_draft=[], p_target=[]))
            bar.update(len(result.ids))
            # The clock starts again here, because `on_seen` is not a part of decoding.
            start = time.perf_counter()
    ids = [token for result in rounds for token in result.ids]
    return Run(ids, rounds, seconds, draft, target)


def step_of_run(task: Task, decoder: str, models: Models) -> Step:
    """Return the step of `autoregressive` or of the task's decoder, in its window if any."""
    if decoder == "autoregressive":
        # Some decoders have their own plain decoding, which draws as the decoder does and so
        # writes the same text. `task.entry` says whether this one has.
        step = build_plain(task.entry, models, task.settings)
    else:
        step = task.step(models)
    # The decoder gets the tokens of the window as if they were the whole text.
    if task.window:
        step = windowed(step, len(task.x), task.n_ctx)
    return step


def with_costs(task: Task) -> tuple[Task, float]:
    """Return the task with the costs that its decoder needs, and the seconds this took."""
    if not task.needs_costs:
        return task, 0.0
    from measure.costs import N_ROWS, measure_costs  # few decoders choose by costs
    start = time.perf_counter()
    models = task.models()
    n_prompt = len(task.x)
    ids = window(task.x, n_prompt, task.n_ctx)  # the end of a prompt that fills the context
    costs = measure_costs(models.draft_rows, models.target_rows, ids, min(N_ROWS, task.n_ctx))
    return task._replace(costs=costs), time.perf_counter() - start


def warmed_up(task: Task) -> tuple[Task, float]:
    """Run both decoders for two tokens, so that no measured run includes a first call.

    Returns the task with costs and the seconds to measure them, as `with_costs` does.
    """
    target = task.new_target()
    # A measured run must not wait for Numba. Only a GPT2, which has `params`, uses its
    # products.
    if hasattr(target, "params"):
        products.warm_up(target.params["wpe"].dtype, notify)
    task, seconds = with_costs(task)
    # Two tokens are the fewest with a guess, because the last token is never guessed.
    for decoder in ("autoregressive", task.decoder):
        decoded_run(task._replace(N=min(task.N, 2)), decoder)
    return task, seconds
