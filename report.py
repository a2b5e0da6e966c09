"""Run two decoders by the clock, count what they did, and say it: the figures behind main.py.

    Task        what is to be written, with which models and which decoder
    Run         one decoding of it: ids, rounds, seconds
    figures     both runs as one dict; every number in it was measured in this process
    describe    the dict for people
"""

import platform
import time
from functools import partial
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from sampling import warped
from speculative import generate
from variants import DECODERS, Models, build, build_autoregressive
from variants.auto import K_MAX, auto, measure
from watch import Recorded, watcher
from window import window, windowed


class Task(NamedTuple):
    """What a run needs, loaded and checked."""

    encoder: object
    x: list  # the prompt's ids
    stop: set
    new_draft: object  # () -> a GPT2 that has read nothing yet
    new_target: object
    heads: object  # the path of the target's Medusa heads
    knobs: dict  # sampling.warp's
    decoder: str
    settings: dict  # the decoder's own flags
    N: int
    seed: int
    n_ctx: int  # of the models in use, the smallest
    window: bool  # go on beyond n_ctx, with a window of the text (window.py)

    @property
    def room(self):
        """New tokens wanted, or as many of them as the context has places for."""
        return self.N if self.window else min(self.N, self.n_ctx - len(self.x))


class Timed:
    """A model with a clock: everything of the model's, and the seconds of each pass."""

    def __init__(self, model):
        self.model, self.seconds = model, []
        self.tree, self.tree_hidden = self.clocked(model.tree), self.clocked(model.tree_hidden)
        self.read = self.clocked(model)

    def __call__(self, ids, n_last=1):
        return self.read(ids, n_last)

    def __getattr__(self, name):
        return getattr(self.model, name)

    def clocked(self, method):
        def timed(*args):
            start = time.perf_counter()
            result = method(*args)
            self.seconds.append(time.perf_counter() - start)
            return result

        return timed

    def ms(self):
        """The median milliseconds of a pass, or None if there was none."""
        return 1e3 * float(np.median(self.seconds)) if self.seconds else None


class Run(NamedTuple):
    """One decoding and what was seen of it."""

    ids: list  # the new ones
    rounds: list  # without their rows of probabilities, which are large
    rows: list  # how many rows the target scored in each round
    seconds: float
    draft: Timed
    target: Timed
    chosen: list  # the K of each round, for --K auto


def choose_step(task, draft, target):
    """The decoder's step, and the list in which --K auto enters its choices."""
    chosen, warp = [], partial(warped, **task.knobs)
    if task.settings.get("K") != "auto":
        models = Models(draft, target, task.knobs, task.heads)
        return build(task.decoder, models, task.settings), chosen
    if task.n_ctx < K_MAX + 2:
        raise ValueError(f"need n_ctx >= {K_MAX + 2} for --K auto, got {task.n_ctx}")
    x = task.x[: task.n_ctx - K_MAX - 1]
    costs = measure(warp(task.new_draft()), warp(task.new_target()), x)
    return auto(warp(draft), warp(target), costs, lambda K, alpha: chosen.append(K)), chosen


def decode(task, decoder, on_seen=None, n_top=0):
    """Run `autoregressive` or the task's decoder from a cold start, with a bar on a terminal.

    `on_seen` gets every round as data (watch.py) and takes the bar's place.
    """
    draft = task.new_draft and Timed(task.new_draft())
    target = Timed(task.new_target())
    if decoder == "autoregressive":
        step, chosen = build_autoregressive(Models(draft, target, task.knobs)), []
    else:
        step, chosen = choose_step(task, draft, target)
    if task.window:
        step = windowed(step, len(task.x), task.n_ctx)
    rounds, rows, rng = [], [], np.random.default_rng(task.seed)
    if on_seen:
        rng = Recorded(rng)
        see = watcher_of(task, rng, draft, target, n_top)
    start, disable = time.perf_counter(), True if on_seen else None  # None: only on a terminal
    with tqdm(total=task.room, desc=decoder, unit="token", leave=False, disable=disable) as bar:
        for round in generate(task.x, step, task.room, rng, task.stop):
            if on_seen:
                on_seen(see(round))
            rounds.append(round._replace(p_draft=None, p_target=None))
            rows.append(len(round.p_target))
            bar.update(len(round.ids))
    seconds = time.perf_counter() - start
    ids = [token for round in rounds for token in round.ids]
    return Run(ids, rounds, rows, seconds, draft, target, chosen)


def watcher_of(task, rng, draft, target, n_top):
    """watch.py's eye on the task's decoder; where guesses are a tree, it knows no more of them."""
    models = {"draft": draft, "target": target}
    clocks = {name: model.seconds for name, model in models.items() if model}
    decoder = "tree" if DECODERS[task.decoder].tree(task.settings) else task.decoder
    return watcher(task.encoder, rng, decoder, clocks, n_top)


def warm_up(task):
    """One short pass of each model, so that the first run does not pay for pages and threads."""
    for new_model in (task.new_draft, task.new_target):
        if new_model:
            new_model()(task.x[:1])


def figures(task, on_seen=None, n_top=0):
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
        "exact": bool(DECODERS[task.decoder].exact(task.settings)),
        "n_ctx": task.n_ctx,
        "window_moved": len(task.x) + max(len(plain.ids), len(fast.ids)) > task.n_ctx,
        "autoregressive": text_figures(task, plain),
        task.decoder: text_figures(task, fast),
        "tokens_per_target_pass": ratio(len(fast.ids), len(fast.rounds)),
        "rows_per_target_pass": float(np.mean(fast.rows)) if fast.rows else None,
        **acceptance_figures(task, fast),
        "draft_ms": fast.draft.ms() if fast.draft else None,
        "target_ms": plain.target.ms(),
        "target_pass_ms": fast.target.ms(),
        "speedup_predicted": predict(plain, fast),
        "speedup_measured": ratio(plain.seconds, fast.seconds),
    }
    if fast.chosen:
        numbers["mean_K"] = float(np.mean(fast.chosen))
    if task.knobs["temperature"] == 0:
        numbers["identical"] = plain.ids == fast.ids
        if plain.ids != fast.ids:
            numbers["first_difference"] = first_difference(task, plain.ids, fast.ids)
    return numbers


def text_figures(task, run):
    """Time and text of one run, and what ended it: N, a stop id or n_ctx."""
    stopped = run.ids and run.ids[-1] in task.stop
    return {"time_s": run.seconds, "tokens": len(run.ids),
            "tokens_per_second": ratio(len(run.ids), run.seconds),
            "ended_by": "stop" if stopped else "N" if len(run.ids) == task.N else "n_ctx",
            "text": task.encoder.decode(task.x + run.ids), "ids": run.ids}


def acceptance_figures(task, run):
    """Kept and examined guesses; None where the guesses are a tree, whose nodes are rivals."""
    if DECODERS[task.decoder].tree(task.settings):
        return {"accepted": None, "examined": None, "acceptance": None}
    accepted = sum(round.n_kept for round in run.rounds)
    examined = sum(round.n_examined for round in run.rounds)
    return {"accepted": accepted, "examined": examined, "acceptance": ratio(accepted, examined)}


def ratio(a, b):
    """a / b, or None if b is 0."""
    return a / b if b else None


def predict(plain, fast):
    """Tokens a round, times one row's time, over a round's: `theory.chen_speedup`, measured.

    The times are those of the models' passes alone, so that the measured speed-up stays below by
    what sampling and verification take.
    """
    if not fast.rounds:
        return None
    models = [model for model in (fast.draft, fast.target) if model and model.seconds]
    a_round = sum(model.ms() * len(model.seconds) for model in models) / len(fast.rounds)
    return len(fast.ids) / len(fast.rounds) * plain.target.ms() / a_round


def first_difference(task, a, b):
    """Where two greedy texts part, and how close the two best logits were there."""
    pairs = enumerate(zip(a, b))
    place = next((i for i, (one, other) in pairs if one != other), min(len(a), len(b)))
    x = window(task.x + a[:place], len(task.x), task.n_ctx)  # without --window: all of it
    logits = np.sort(task.new_target()(x)[-1])
    return {"token": place, "gap_of_the_two_best_logits": float(logits[-1] - logits[-2])}


def context_lines(numbers, decoder):
    """What is to be said of the context: nothing, if the text did not come to its end."""
    n_ctx = numbers["n_ctx"]
    if numbers["window_moved"]:
        return [f"Window                  the models see the last {n_ctx // 2} to {n_ctx - 1} ids, "
                f"and the target's law is meant so"]
    full = [run["tokens"] for run in (numbers["autoregressive"], numbers[decoder])
            if run["ended_by"] == "n_ctx"]
    return [f"Context full            n_ctx = {n_ctx} reached after {full[0]} new tokens; --window "
            f"goes on"] if full else []


def describe(numbers, decoder):
    """The figures as lines for people."""
    def shown(name, form="{:.2f}"):
        return "-" if numbers[name] is None else form.format(numbers[name])

    lines = []
    for name in ("autoregressive", decoder):
        run, title = numbers[name], f"{name.capitalize()} decode"
        speed = f"{run['tokens_per_second']:.1f} tokens a second" if run["tokens"] else "no tokens"
        lines += [title, "-" * len(title), f"Time = {run['time_s']:.2f}s ({speed})",
                  f"Text = {run['text']}", ""]
    lines.append(f"Tokens per target pass  {shown('tokens_per_target_pass')}, "
                 f"from {shown('rows_per_target_pass', '{:.1f}')} rows")
    if numbers["examined"] is not None:
        lines.append(f"Acceptance              {shown('acceptance')} "
                     f"({numbers['accepted']} of {numbers['examined']} guesses examined)")
    if "mean_K" in numbers:
        idle = " (no K pays here: hardly a guess was made)" if numbers["mean_K"] < 0.1 else ""
        lines.append(f"K chosen                {shown('mean_K')} on average{idle}")
    if numbers["draft_ms"] is not None:
        lines.append(f"Draft                   {shown('draft_ms')} ms a pass")
    lines += [f"Target                  {shown('target_ms')} ms a pass over one row, "
              f"{shown('target_pass_ms')} ms over a round's",
              f"Speed-up                {shown('speedup_measured')} measured, "
              f"{shown('speedup_predicted')} predicted from these figures"]
    lines += context_lines(numbers, decoder)
    if not numbers["exact"]:
        lines.append("Law                     not the target's: this method trades it for speed")
    if "identical" in numbers:
        lines.append(f"Texts identical         {'yes' if numbers['identical'] else 'no'}")
    if "first_difference" in numbers:
        where = numbers["first_difference"]
        lines.append(f"They part at new token {where['token']}, where the target's two best logits "
                     f"differ by {where['gap_of_the_two_best_logits']:.2g}")
    return "\n".join(lines)
