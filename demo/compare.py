"""Run plain decoding and a decoder, time both and count their work: main.py's figures."""

import math
import platform
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from demo.task import Task
from lib.backend import products
from lib.backend.int8 import Int8
from lib.prefix import common_prefix
from lib.terminal import notify
from sampling import adjusted_logits
from speculative import Round, Step, generate
from theory.speedup import walltime_improvement
from variants import Models, build_plain
from variants.shared.branches import Tree
from wrappers.forced import ForcedRound
from wrappers.window import window, windowed

SHORTEST = 8  # tokens of a text that is long enough to measure its speed


class Timed:
    """Call a model; record the seconds of each pass and its rows of logits."""

    def __init__(self, model):
        self.model = model
        self.seconds = []
        self.rows = []

    def __getattr__(self, name):
        # Called for names that Timed lacks, such as n_ctx and fresh.
        if name.startswith("__"):  # copy and pickle ask for these before `model` is set
            raise AttributeError(name)
        return getattr(self.model, name)

    def __call__(self, ids, n_last=1):
        # A GPU's time counts too: the models return NumPy arrays, so a pass has ended here.
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

        The mean is returned because a run takes the mean time of a pass times the number of
        passes. The median would be smaller: a draft's pass after a target's pass finds the
        processor's caches cold and is slow.
        """
        if self.n_passes() == 0:
            return None
        with_logits = [seconds for seconds, n_rows in zip(self.seconds, self.rows) if n_rows]
        return 1e3 * float(np.mean(with_logits))


class TimedStates(Timed):
    """Also time `hidden` and `logits`, the two halves of a GPT2's pass.

    Decoders with heads call the halves. For the prompt they call `hidden` alone: this pass has
    no logits, so 0 rows, and is not among the passes that write the text.
    """

    def hidden(self, ids, n_last=1):
        """Time the first half of a pass."""
        start = time.perf_counter()
        states = self.model.hidden(ids, n_last)
        self.seconds.append(time.perf_counter() - start)
        self.rows.append(0)  # `logits` puts the number of rows here, if it is called
        return states

    def logits(self, states):
        """Time the second half; add it to the last pass."""
        start = time.perf_counter()
        logits = self.model.logits(states)
        self.seconds[-1] += time.perf_counter() - start
        self.rows[-1] = len(logits)
        return logits


def timed(model) -> Timed:
    """Return a model that records its passes, and has all that `model` has."""
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
        from demo.trace import Recorded, watcher  # only a run that is shown needs them
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
    from demo.costs import N_ROWS, measure_costs  # few decoders choose by costs
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


# ---- both runs

def compare(task: Task, on_seen: Callable[[dict], Any] | None = None) -> dict:
    """Run plain decoding and the task's decoder; return all measurements as a dict for JSON.

    Times are in seconds (_s) or milliseconds (_ms), and None if nothing was measured. The
    decoder's time includes the measurement of its costs.
    """
    task, measuring = warmed_up(task)
    plain = decoded_run(task, "autoregressive")
    fast = decoded_run(task, task.decoder, on_seen)
    # The user waits for the measurement of the costs too.
    fast = fast._replace(seconds=fast.seconds + measuring)
    acceptance = acceptance_figures(fast.rounds)
    # A model of transformers names its library.
    library = getattr(task.new_target(), "library", None) or products.library_name()
    # Without --window a text ends at n_ctx tokens, so a longer text has moved the window.
    longest_text = len(task.x) + max(len(plain.ids), len(fast.ids))
    numbers = {
        "prompt": task.encoder.decode(task.x),
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "product": library,
        "vocabularies": task.vocabularies,
        "exact": task.entry.is_exact(task.settings),  # None: not known
        "n_ctx": None if task.n_ctx == math.inf else task.n_ctx,  # JSON has no infinity
        "window_moved": longest_text > task.n_ctx,
        "has_chats": getattr(task.encoder, "has_chats", False),
        "autoregressive": text_figures(task, plain),
        task.decoder: text_figures(task, fast),
        **pass_figures(plain, fast),
        "draft_in_int8": is_draft_in_int8(task, fast),
        **acceptance,
        "speedup_measured": measured_speedup(plain, fast),
        "speedup_predicted": predicted_speedup(task, plain, fast, acceptance["acceptance"]),
        **difference_of_texts(task, plain.ids, fast.ids),
    }
    if task.grammar:
        numbers |= pattern_figures(task, fast.ids, fast.rounds)
    # Costs that --costs gave are not measured, so `measuring` is 0 for them.
    if measuring and task.costs:
        numbers |= {"measuring_s": measuring, "costs": task.costs._asdict()}
    return numbers


def is_draft_in_int8(task: Task, run: Run) -> bool | None:
    """Return whether the draft that a decoder made from the target is in int8; None without."""
    if not task.entry.make_draft or not run.draft:
        return None
    return isinstance(run.draft.params["wte"], Int8)


def text_figures(task: Task, run: Run) -> dict:
    """Return time and text of one run, and what ended it: N, a stop token or n_ctx."""
    ended_by = "n_ctx"  # unless one of the two below ended the text
    if run.ids and run.ids[-1] in task.stop:
        ended_by = "stop"
    elif len(run.ids) == task.N:
        ended_by = "N"
    return {"time_s": run.seconds, "tokens": len(run.ids),
            "tokens_per_second": quotient(len(run.ids), run.seconds), "ended_by": ended_by,
            "text": task.encoder.decode(task.x + run.ids), "ids": run.ids}


def pattern_figures(task: Task, ids: list[int], rounds: Sequence[Round]) -> dict:
    """Return whether the pattern may end after the new text, and how many tokens it forced.

    An end of text is ignored. A forced token is one of a round without a pass.
    """
    if ids and ids[-1] == task.encoder.end_of_text:
        ids = ids[:-1]
    pattern = task.pattern()
    forced = [result for result in rounds if isinstance(result, ForcedRound)]
    return {"fits_pattern": pattern is None or pattern.may_end(task.x + ids),
            "forced": sum(len(result.ids) for result in forced)}


def pass_figures(plain: Run, fast: Run) -> dict:
    """Return how many passes the decoder took, how large they were, and their mean times.

    Passes that only read the prompt, for heads, are counted apart.
    """
    n_passes = fast.target.n_passes()  # those that gave logits
    return {"target_passes": n_passes,
            "reading_passes": len(fast.target.rows) - n_passes,
            "tokens_per_target_pass": quotient(len(fast.ids), n_passes),
            "rows_per_target_pass": quotient(sum(fast.target.rows), n_passes),
            "draft_ms": fast.draft.ms() if fast.draft else None,
            "target_ms": plain.target.ms(),
            "target_pass_ms": fast.target.ms()}


def acceptance_figures(rounds: Sequence[Round]) -> dict:
    """Return how many rounds accepted 0, 1, .. guesses; then accepted and tested guesses.

    The numbers of accepted and of tested guesses are None for trees, because siblings compete
    for one position. Rounds that a pattern forced do not count.
    """
    # The guesses of a forced round are accepted without a test.
    rounds = [result for result in rounds if not isinstance(result, ForcedRound)]
    n_accepted = [result.n_accepted for result in rounds]
    # The list has an entry for each number up to `most`, even if no round accepted so many.
    most = max((n_guesses_in_a_row(result.guesses) for result in rounds), default=0)
    figures: dict = {"rounds_by_accepted": [n_accepted.count(n) for n in range(most + 1)],
                     "accepted": None, "tested": None, "acceptance": None}
    has_tree = any(isinstance(result.guesses, Tree) for result in rounds)
    if not has_tree:
        accepted = sum(n_accepted)
        tested = sum(result.n_tested for result in rounds)
        figures |= {"accepted": accepted, "tested": tested,
                    "acceptance": quotient(accepted, tested)}
    return figures


def n_guesses_in_a_row(guesses: list | Tree) -> int:
    """Return how many guesses one round can accept: all of a chain, a tree's longest path."""
    if isinstance(guesses, Tree):
        return max(map(len, guesses.paths()), default=0)
    return len(guesses)


def quotient(a: float, b: float) -> float | None:
    """Return a / b, or None if b is 0."""
    return a / b if b else None


def measured_speedup(plain: Run, fast: Run) -> float | None:
    """Return the ratio of tokens per second; None if either text is too short to measure it.

    It is not the ratio of seconds, because texts that end at stop tokens differ in length.
    """
    # The first tokens take longer, because the prompt is read with them.
    if min(len(plain.ids), len(fast.ids)) < SHORTEST:
        return None
    return (len(fast.ids) / fast.seconds) / (len(plain.ids) / plain.seconds)


def predicted_speedup(task: Task, plain: Run, fast: Run, alpha: float | None) -> float | None:
    """Return Leviathan et al. (2023) Theorem 3.8 for this run's acceptance and mean pass times.

    The theorem leaves out all that is not a pass: sampling, the test, and Python's loop.
    Returns None if it does not apply.
    """
    has_one_K = isinstance(task.settings.get("K"), int)  # K may be "auto"
    # The theorem is for one K, and a pattern forces tokens without a pass.
    if not task.entry.is_chain or not has_one_K or task.grammar:
        return None
    # The prediction is shown next to a measured speed-up only.
    if alpha is None or measured_speedup(plain, fast) is None:
        return None
    # The last round may be shorter than K.
    K = max(len(result.guesses) for result in fast.rounds)
    row_ms = plain.target.ms()  # plain decoding computes one row per pass
    pass_ms = fast.target.ms()
    draft_ms = fast.draft.ms() if fast.draft else None
    if row_ms is None or pass_ms is None or draft_ms is None:
        return None
    return walltime_improvement(alpha, K, draft_ms / row_ms, pass_ms / row_ms)


def difference_of_texts(task: Task, plain: list[int], fast: list[int]) -> dict:
    """Return whether the texts are identical, and where they first differ.

    Returns {} if chance may make the texts differ.
    """
    if task.sampling["temperature"]:
        # With chance the texts are comparable only if plain decoding draws as the decoder does.
        if task.entry.plain:
            return {"identical": plain == fast}
        return {}
    if plain == fast:
        return {"identical": True}
    return {"identical": False, "first_difference": first_difference(task, plain, fast)}


def first_difference(task: Task, a: list[int], b: list[int]) -> dict:
    """Return where two greedy texts first differ, and how close the best two logits were."""
    n = common_prefix(a, b)  # index of the first token that differs
    # The target reads the text up to this token; with --window only the end of that text.
    x = window(task.x + a[:n], len(task.x), task.n_ctx)
    rows = np.asarray(task.new_target()(x), dtype=np.float64)  # [1, n_vocab]
    penalty = task.sampling.get("repetition_penalty", 1.0)
    [logits] = adjusted_logits(rows, x, penalty, task.pattern())
    second, best = np.sort(logits)[-2:]
    return {"token": n, "gap_of_the_two_best_logits": float(best - second)}
