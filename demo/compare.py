"""Run plain decoding and a decoder, time both and count their work: main.py's figures."""

import platform
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from demo.costs import N_ROWS, measure_costs
from demo.task import Task
from demo.trace import Recorded, watcher
from gpt2 import common_prefix
from lib.backend import products
from lib.backend.int8 import Int8
from lib.terminal import notify
from sampling import adjusted_logits
from speculative import Round, generate
from theory.speedup import walltime_improvement
from variants import build, build_plain
from variants.shared.branches import Tree
from wrappers.forced import ForcedRound, with_forced_runs
from wrappers.window import window, windowed

SHORTEST = 8  # tokens of a text that is long enough to measure its speed


class Timed:
    """Call a model; record the seconds of each pass and its rows of logits."""

    def __init__(self, model):
        self.model = model
        self.seconds = []
        self.rows = []

    def __getattr__(self, name):
        if name.startswith("__"):  # copy and pickle ask for these before `model` is set
            raise AttributeError(name)
        return getattr(self.model, name)

    def __call__(self, ids, n_last=1):
        start = time.perf_counter()
        logits = self.model(ids, n_last)
        self.seconds.append(time.perf_counter() - start)
        self.rows.append(len(logits))
        return logits

    def n_passes(self) -> int:
        """Return how many passes gave logits."""
        return sum(n_rows > 0 for n_rows in self.rows)

    def ms(self) -> float | None:
        """Return the mean milliseconds of a pass that gave logits, or None if there was none.

        The sum of these passes decides how long a run takes. The median is smaller: a draft's
        pass after a target's pass finds the processor's caches cold.
        """
        if self.n_passes() == 0:
            return None
        seconds = [seconds for seconds, n_rows in zip(self.seconds, self.rows) if n_rows]
        return 1e3 * float(np.mean(seconds))


class TimedStates(Timed):
    """Time the two halves of a GPT2's pass as well, which decoders with heads call.

    Heads read the hidden states of the prompt in a pass without logits: its number of rows is
    0, and it is not counted among the passes that write the text.
    """

    def hidden(self, ids, n_last=1):
        """Time the first half of a pass."""
        start = time.perf_counter()
        states = self.model.hidden(ids, n_last)
        self.seconds.append(time.perf_counter() - start)
        self.rows.append(0)  # until their logits are wanted
        return states

    def logits(self, states):
        """Time the second half; add it to the last pass."""
        start = time.perf_counter()
        logits = self.model.logits(states)
        self.seconds[-1] += time.perf_counter() - start
        self.rows[-1] = len(logits)
        return logits


def timed(model) -> Timed:
    """Return a model that records its passes, and offers what the model offers."""
    return TimedStates(model) if hasattr(model, "hidden") else Timed(model)


class Run(NamedTuple):
    """Hold one run of a decoder and its measurements."""

    ids: list[int]  # the new tokens
    rounds: list[Round]  # without their rows of probabilities, which are large
    seconds: float
    draft: Timed | None
    target: Timed


# ---- one run

def decoded_run(task: Task, decoder: str, on_seen: Callable[[dict], Any] | None = None) -> Run:
    """Run `autoregressive` or the task's decoder with empty caches; show a bar on a terminal.

    `on_seen` receives every round as data (demo/trace.py), with "end", the seconds since the
    start. A run with `on_seen` shows no bar.
    """
    models = task.models()
    draft = models.draft and timed(models.draft)
    target = timed(models.target)
    build_step = build_plain if decoder == "autoregressive" else build
    step = build_step(task.decoder, models._replace(draft=draft, target=target), task.settings)
    if task.grammar and decoder != "autoregressive":
        step = with_forced_runs(step, models.sampling["allowed"], task.stop)
    if task.window:
        step = windowed(step, len(task.x), task.n_ctx)
    rng: Any = np.random.default_rng(task.seed)
    if on_seen:
        rng = Recorded(rng, target.seconds)
        clocks = {"target": target.seconds}
        if draft:
            clocks["draft"] = draft.seconds
        see = watcher(task.encoder, rng, task.entry.test, clocks)
    rounds = []
    n_left = task.n_new
    seconds = 0.0
    no_bar = True if on_seen else None  # None: no bar unless on a terminal
    start = time.perf_counter()
    with tqdm(total=task.n_new, desc=decoder, unit="token", leave=False, disable=no_bar) as bar:
        for result in generate(task.x, step, task.n_new, rng, task.stop):
            seconds += time.perf_counter() - start
            if on_seen:
                on_seen(see(result) | {"end": seconds, "n_left": n_left})
            n_left -= len(result.ids)
            rounds.append(result._replace(p_draft=None, p_target=None))
            bar.update(len(result.ids))
            start = time.perf_counter()  # watching is not a part of decoding
    ids = [token for result in rounds for token in result.ids]
    return Run(ids, rounds, seconds, draft, target)


def with_costs(task: Task) -> tuple[Task, float]:
    """Return the task with the costs that its decoder needs, and the seconds this took."""
    if not task.needs_costs:
        return task, 0.0
    start = time.perf_counter()
    models = task.models()
    ids = window(task.x, len(task.x), task.n_ctx)
    costs = measure_costs(models.draft_rows, models.target_rows, ids, min(N_ROWS, task.n_ctx))
    return task._replace(costs=costs), time.perf_counter() - start


def warmed_up(task: Task) -> tuple[Task, float]:
    """Run both decoders for two tokens, so that no measured run includes a first call.

    Returns the task with costs and the seconds to measure them, as `with_costs` does.
    """
    target = task.new_target()
    if hasattr(target, "params"):  # the compiled products are a GPT2's
        products.warm_up(target.params["wpe"].dtype, notify)
    task, seconds = with_costs(task)
    for decoder in ("autoregressive", task.decoder):
        decoded_run(task._replace(N=min(task.N, 2)), decoder)
    return task, seconds


# ---- both runs

def compare(task: Task, on_seen: Callable[[dict], Any] | None = None) -> dict:
    """Run plain decoding and the task's decoder; return all measurements as a dict for JSON.

    Times are in seconds (_s) or milliseconds (_ms), and None if nothing was measured. The
    decoder's time includes the measurement of its costs.
    """
    task, measuring = warmed_up(task)
    plain = decoded_run(task, "autoregressive")
    fast = decoded_run(task, task.decoder, on_seen)
    fast = fast._replace(seconds=fast.seconds + measuring)
    acceptance = acceptance_figures(fast.rounds)
    numbers = {
        "prompt": task.encoder.decode(task.x),
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "product": getattr(task.new_target(), "library", None) or products.library_name(),
        "vocabularies": str(task.common) if task.common else None,  # None: one vocabulary
        "exact": bool(task.entry.is_exact(task.settings)),
        "n_ctx": task.n_ctx,
        "window_moved": len(task.x) + max(len(plain.ids), len(fast.ids)) > task.n_ctx,
        "autoregressive": text_figures(task, plain),
        task.decoder: text_figures(task, fast),
        **pass_figures(plain, fast),
        "draft_in_int8": bool(task.entry.make_draft and fast.draft
                              and isinstance(fast.draft.params["wte"], Int8)),
        **acceptance,
        "speedup_measured": measured_speedup(plain, fast),
        "speedup_predicted": predicted_speedup(task, plain, fast, acceptance["acceptance"]),
        **difference_of_texts(task, plain.ids, fast.ids),
    }
    if task.grammar:
        numbers["fits_pattern"] = fits_pattern(task, fast.ids)
        numbers["forced"] = sum(len(result.ids) for result in fast.rounds
                                if isinstance(result, ForcedRound))
    if measuring and task.costs:
        numbers |= {"measuring_s": measuring, "costs": task.costs._asdict()}
    return numbers


def text_figures(task: Task, run: Run) -> dict:
    """Return time and text of one run, and what ended it: N, a stop token or n_ctx."""
    ended_by = "n_ctx"
    if run.ids and run.ids[-1] in task.stop:
        ended_by = "stop"
    elif len(run.ids) == task.N:
        ended_by = "N"
    return {"time_s": run.seconds, "tokens": len(run.ids),
            "tokens_per_second": ratio(len(run.ids), run.seconds), "ended_by": ended_by,
            "text": task.encoder.decode(task.x + run.ids), "ids": run.ids}


def fits_pattern(task: Task, ids: list[int]) -> bool:
    """Return whether the new text, without its end of text, is one that the pattern may end."""
    if ids and ids[-1] == task.encoder.end_of_text:
        ids = ids[:-1]
    pattern = task.pattern()
    return pattern is None or pattern.may_end(task.x + ids)


def pass_figures(plain: Run, fast: Run) -> dict:
    """Return how many passes the decoder took, how large they were, and their mean times.

    Passes that only read the prompt, for heads, are counted apart.
    """
    n_passes = fast.target.n_passes()
    return {"target_passes": n_passes,
            "reading_passes": len(fast.target.rows) - n_passes,
            "tokens_per_target_pass": ratio(len(fast.ids), n_passes),
            "rows_per_target_pass": ratio(sum(fast.target.rows), n_passes),
            "draft_ms": fast.draft.ms() if fast.draft else None,
            "target_ms": plain.target.ms(),
            "target_pass_ms": fast.target.ms()}


def acceptance_figures(rounds: Sequence[Round]) -> dict:
    """Return how many rounds accepted 0, 1, .. guesses; then accepted and tested guesses.

    These are None for trees, in which siblings compete. Rounds that a pattern forced do not
    count.
    """
    rounds = [result for result in rounds if not isinstance(result, ForcedRound)]
    n_accepted = [result.n_accepted for result in rounds]
    most = max((n_guesses_in_a_row(result.guesses) for result in rounds), default=0)
    figures: dict = {"rounds_by_accepted": [n_accepted.count(n) for n in range(most + 1)],
                     "accepted": None, "tested": None, "acceptance": None}
    if not any(isinstance(result.guesses, Tree) for result in rounds):
        accepted = sum(n_accepted)
        tested = sum(result.n_tested for result in rounds)
        figures |= {"accepted": accepted, "tested": tested, "acceptance": ratio(accepted, tested)}
    return figures


def n_guesses_in_a_row(guesses: list | Tree) -> int:
    """Return how many guesses one round can accept: all of a chain, a tree's longest path."""
    if isinstance(guesses, Tree):
        return max(map(len, guesses.paths()), default=0)
    return len(guesses)


def ratio(a: float, b: float) -> float | None:
    """Return a / b, or None if b is 0."""
    return a / b if b else None


def measured_speedup(plain: Run, fast: Run) -> float | None:
    """Return the ratio of tokens per second; None if either text is too short to measure it.

    It is not the ratio of seconds, because texts that end at stop tokens differ in length.
    """
    if min(len(plain.ids), len(fast.ids)) < SHORTEST:
        return None
    return (len(fast.ids) / fast.seconds) / (len(plain.ids) / plain.seconds)


def predicted_speedup(task: Task, plain: Run, fast: Run, alpha: float | None) -> float | None:
    """Return Leviathan et al. (2023) Theorem 3.8 for this run's acceptance and mean pass times.

    The theorem leaves out all that is not a pass: sampling, the test, and Python's loop. None
    if the decoder is not the papers' with a fixed K, a pattern forces tokens without a pass, or
    there is no measured speed-up to compare it with.
    """
    is_papers = task.decoder in ("speculative", "quantized")
    if not is_papers or task.settings["K"] == "auto" or task.grammar:
        return None
    if alpha is None or measured_speedup(plain, fast) is None:
        return None
    K = max(len(result.guesses) for result in fast.rounds)
    row_ms = plain.target.ms()
    pass_ms = fast.target.ms()
    draft_ms = fast.draft.ms() if fast.draft else None
    if row_ms is None or pass_ms is None or draft_ms is None:
        return None
    return walltime_improvement(alpha, K, draft_ms / row_ms, pass_ms / row_ms)


def difference_of_texts(task: Task, plain: list[int], fast: list[int]) -> dict:
    """Return whether the texts are identical, if they should be, and where they differ."""
    if task.sampling["temperature"]:
        return {"identical": plain == fast} if task.entry.plain else {}
    if plain == fast:
        return {"identical": True}
    return {"identical": False, "first_difference": first_difference(task, plain, fast)}


def first_difference(task: Task, a: list[int], b: list[int]) -> dict:
    """Return where two greedy texts first differ, and how close the best two logits were."""
    n = common_prefix(a, b)
    x = window(task.x + a[:n], len(task.x), task.n_ctx)  # without --window: all of it
    rows = np.asarray(task.new_target()(x), dtype=np.float64)
    penalty = task.sampling.get("repetition_penalty", 1.0)
    (logits,) = np.sort(adjusted_logits(rows, x, penalty, task.pattern()))
    return {"token": n, "gap_of_the_two_best_logits": float(logits[-1] - logits[-2])}
