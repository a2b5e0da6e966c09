"""Compare a run of a decoder with one of plain decoding: times, passes, accepted guesses."""

import math
import platform
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lib.backend import products
from lib.backend.int8 import Int8
from lib.prefix import common_prefix
from measure.passes import Run, acceptance_figures, quotient
from run.task import Task
from sampling import adjusted_logits
from speculative import Round
from theory.speedup import walltime_improvement
from wrappers.forced import ForcedRound
from wrappers.window import window

SHORTEST = 8  # tokens of a text that is long enough to measure its speed


def compare(task: Task, plain: Run, fast: Run, measuring: float = 0.0) -> dict:
    """Return all measurements of plain decoding and of a decoder, as a dict for JSON.

    Times are in seconds (_s) or milliseconds (_ms), and None if nothing was measured.
    `measuring` are the seconds in which the decoder's costs were measured.
    """
    # The user waits for the measurement of the costs too, before the first token.
    fast = replace(fast, seconds=fast.seconds + measuring, prompt_s=fast.prompt_s + measuring)
    acceptance = acceptance_figures(fast.rounds)
    # A model of transformers names its library.
    library = getattr(task.models.target, "library", None) or products.library_name()
    # Without --window a text ends at n_ctx tokens, so a longer text has moved the window.
    longest_text = len(task.x) + max(len(plain.ids), len(fast.ids))
    numbers = {
        "prompt": task.encoder.decode(task.x),
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "product": library,
        "vocabularies": task.vocabularies,
        "exact": task.entry.exact(task.settings),  # None: not known
        "n_ctx": None if task.n_ctx == math.inf else task.n_ctx,  # JSON has no infinity
        "window_moved": longest_text > task.n_ctx,
        "has_chats": getattr(task.encoder, "has_chats", False),
        "autoregressive": text_figures(task, plain),
        task.decoder: text_figures(task, fast),
        **pass_figures(plain, fast),
        "draft_in_int8": is_draft_in_int8(task, fast),
        **acceptance,
        **speedups(task, plain, fast, acceptance["acceptance"]),
        **difference_of_texts(task, plain.ids, fast.ids),
    }
    if task.grammar:
        numbers |= pattern_figures(task, fast.ids, fast.rounds)
    # Costs that --costs gave are not measured, so `measuring` is 0 for them.
    if measuring and task.models.costs:
        numbers |= {"measuring_s": measuring, "costs": task.models.costs._asdict()}
    return numbers


def is_draft_in_int8(task: Task, run: Run) -> bool | None:
    """Return whether the draft is the target's copy in int8, not in floats; None without."""
    if not task.entry.draft_maker(task.settings) or not run.draft:
        return None
    from variants.quantized import is_int8_copy  # few decoders make their draft
    target = task.models.target
    if not (hasattr(target, "params") and is_int8_copy(run.draft, target)):
        return None
    return isinstance(run.draft.params["wte"], Int8)


def text_figures(task: Task, run: Run) -> dict:
    """Return time and text of one run, and what ended it: N, a stop or n_ctx.

    The time includes the prompt's; the tokens per second are of the writing after it.
    """
    ended_by = "n_ctx"  # unless one of the two below ended the text
    if run.ids and task.ended(run.ids):
        ended_by = "stop"
    elif len(run.ids) == task.N:
        ended_by = "N"
    figures = {"time_s": run.seconds, "prompt_s": run.prompt_s, "tokens": len(run.ids),
               "tokens_per_second": run.rate, "ended_by": ended_by,
               "text": task.text_of(run.ids), "ids": run.ids}
    return figures | {"logprobs": run.logprobs} if task.logprobs else figures


def pattern_figures(task: Task, ids: list[int], rounds: Sequence[Round]) -> dict:
    """Return whether the pattern may end after the shown text, and how many tokens it forced.

    An end of text is ignored. A forced token is one of a round without a pass.
    """
    if ids and ids[-1] == task.encoder.end_of_text:
        ids = ids[:-1]
    pattern = task.pattern()
    if pattern and (rest := task.after_stop(ids)):  # a stop text cut the last token
        text = task.encoder.decode_bytes(ids).decode("utf-8", "replace").removesuffix(rest)
        ids = pattern.tokenizer.greedy_tokenize(text)
    forced = [result for result in rounds if isinstance(result, ForcedRound)]
    return {"fits_pattern": pattern is None or pattern.may_end(task.x + ids),
            "forced": sum(len(result.ids) for result in forced)}


def pass_figures(plain: Run, fast: Run) -> dict:
    """Return how many passes the decoder took, how large they were, and their mean times.

    Passes without logits, which read the text for heads alone, are counted apart.
    """
    n_passes = fast.target.n_passes()  # those that gave logits
    return {"target_passes": n_passes,
            "reading_passes": len(fast.target.rows) - n_passes,
            "tokens_per_target_pass": quotient(len(fast.ids), n_passes),
            "rows_per_target_pass": quotient(sum(fast.target.rows), n_passes),
            "draft_ms": fast.draft.ms() if fast.draft else None,
            "target_ms": plain.target.ms(),
            "target_pass_ms": fast.target.ms()}


def speedups(task: Task, plain: Run, fast: Run, alpha: float | None) -> dict:
    """Return the speed-ups, ratios of tokens per second; None if a text is too short.

    They are not ratios of seconds, because texts that end at stop tokens differ in length.
    """
    writing = with_prompt = predicted = None
    if min(len(plain.ids), len(fast.ids)) >= SHORTEST and plain.rate and fast.rate:
        writing = fast.rate / plain.rate
        with_prompt = (len(fast.ids) / fast.seconds) / (len(plain.ids) / plain.seconds)
        predicted = predicted_speedup(task, plain, fast, alpha)
    return {"speedup_measured": writing, "speedup_with_prompt": with_prompt,
            "speedup_predicted": predicted}


def predicted_speedup(task: Task, plain: Run, fast: Run, alpha: float | None) -> float | None:
    """Return Leviathan et al. (2023) Theorem 3.8 for this run's acceptance and mean pass times.

    The theorem leaves out all that is not a pass: sampling, the test, and Python's loop.
    Returns None if it does not apply.
    """
    has_one_K = isinstance(task.settings.get("K"), int)  # K may be "auto"
    # The theorem is for one K, and a pattern forces tokens without a pass.
    if not task.entry.is_chain or not has_one_K or task.grammar:
        return None
    # The theorem counts one draft pass for each guess.
    n_guesses = sum(len(result.guesses) for result in fast.rounds)
    if not fast.draft or fast.draft.n_passes() != n_guesses:
        return None
    # The last round may be shorter than K.
    K = max(len(result.guesses) for result in fast.rounds)
    row_ms = plain.target.ms()  # plain decoding computes one row per pass
    pass_ms = fast.target.ms()
    draft_ms = fast.draft.ms()
    if alpha is None or row_ms is None or pass_ms is None or draft_ms is None:
        return None
    return walltime_improvement(alpha, K, draft_ms / row_ms, pass_ms / row_ms)


def difference_of_texts(task: Task, plain: list[int], fast: list[int]) -> dict:
    """Return whether the texts are identical, and where they first differ.

    Returns {} if chance may make the texts differ.
    """
    if not task.models.is_greedy:
        # With chance the texts are comparable only if plain decoding draws as the decoder does.
        if task.entry.plain:
            return {"identical": plain == fast}
        return {}
    if plain == fast:
        return {"identical": True}
    return {"identical": False, "first_difference": parting_of_texts(task, plain, fast)}


def parting_of_texts(task: Task, a: list[int], b: list[int]) -> dict:
    """Return where two greedy texts first differ, and how close the best two logits were."""
    n = common_prefix(a, b)  # index of the first token that differs
    # The target reads the text up to this token; with --window only the end of that text.
    x = window(task.x + a[:n], len(task.x), task.n_ctx)
    rows = np.asarray(task.models.target(x), dtype=np.float64)  # [1, n_vocab]
    penalty = task.models.sampling.get("repetition_penalty", 1.0)
    [logits] = adjusted_logits(rows, x, penalty, task.pattern())
    second, best = np.sort(logits)[-2:]
    gap = float(best - second)
    # JSON has no infinity: a pattern or a model may leave one token alone.
    return {"token": n, "gap_of_the_two_best_logits": gap if math.isfinite(gap) else None}
