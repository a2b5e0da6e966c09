"""Speculative sampling: the algorithm of both papers, in one notation.

A small model, the draft, guesses a few tokens; the large model, the target, scores all of them
in one pass; an acceptance rule keeps as many as it can without changing the distribution of the
text (Theorem 1, docs/proof.md). One round:

                      Chen et al. (2023) Alg. 2              Leviathan et al. (2023) Alg. 1
    [1] guess         "Sample draft auto-regressively"       "Sample gamma guesses from M_q"
    [2] score         "In parallel, compute K + 1 sets"      "Run M_p in parallel"
    [3] accept        "if r < min(1, q / p)"                 "the number of accepted guesses n"
    [4] resample      "else sample from (q - p)_+"           "Adjust the distribution from M_p"
    [5] bonus token   "If all tokens are accepted"           the same line, with n = gamma

The papers use p and q with opposite meanings, so the code names the role:

    target, p_target   the large model    Chen: q                   Leviathan: M_p, p
    draft, p_draft     the small model    Chen: p                   Leviathan: M_q, q
    K                  guesses per round  Chen: K, lookahead        Leviathan: gamma
    k                  guesses in one round: K, or fewer near the end of the text
    x                  the text so far    Chen: x_1 .. x_n          Leviathan: prefix
    guesses            tokens             Chen: x~_1 .. x~_K        Leviathan: x_1 .. x_gamma
    t                  index in the round: p_target[t] is the row for guesses[t]
    N                  new tokens wanted
    n_left             new tokens still wanted
    rng                np.random.Generator, the only source of randomness

A model is a callable `model(ids, n_last) -> [n_last, n_vocab]` of probabilities. The last row
is the distribution of the token after `ids`, the row before it is for the token after
`ids[:-1]`, and so on. A speculative decoder is a guess and an acceptance rule (`test`), the two
arguments of `speculative_step`.
"""

import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from sampling import HasRandom, accept, residual, sample

Guesses = Any  # k tokens in a list; a Tree (variants/) if they branch
Rows = Sequence[np.ndarray] | np.ndarray  # distributions [n_vocab], in a list or [n, n_vocab]


class Round(NamedTuple):
    """Hold the result of one round: enough to stream, count, draw and replay it."""

    ids: list[int]  # tokens that the round appends to x, 1 .. k + 1 of them
    guesses: Guesses  # all k guesses, the rejected ones too
    p_draft: Rows  # k rows; guess t was sampled from row t
    p_target: Rows  # [k + 1, n_vocab]; row t is the target's distribution at guess t's position
    n_accepted: int  # guesses that the rule accepted; `generate` drops those after a stop

    @property
    def n_tested(self):
        """Return how many guesses were tested: the accepted ones, and a rejected one if any."""
        # The accepted ones and the rejected one, or all of them, or all before a stop.
        return min(self.n_accepted + 1, len(self.guesses), len(self.ids))


Model = Callable[[Sequence[int], int], np.ndarray]  # (ids, n_last) -> rows
# (x, k, rng) -> guesses, p_draft
Guess = Callable[[list[int], int, HasRandom], tuple[Guesses, Rows]]
# (guesses, p_draft, p_target, rng) -> ids
Test = Callable[[Guesses, Rows, Rows, HasRandom], list[int]]
Step = Callable[[list[int], int, HasRandom], Round]  # (x, n_left, rng) -> Round
# token ids; or a function (new tokens) -> True if the text ends with the last of them
Stop = Collection[int] | Callable[[list[int]], bool]


def guess(x, k, rng, draft: Model, draw=sample):
    """Sample k tokens from the draft one by one; keep their distributions for the rule."""
    guesses, p_draft = [], []
    for _ in range(k):
        p_draft.append(draft(x + guesses, 1)[-1])
        guesses.append(draw(p_draft[-1], rng))
    return guesses, p_draft


def verify(guesses, p_draft, p_target, rng):
    """Accept the guesses that can be accepted, then add one token: steps [3] to [5].

    `p_draft` has k rows, the distributions the guesses were sampled from; `p_target` has k + 1.
    Returns 1 .. k + 1 tokens, distributed exactly as the target's own (Theorem 1).

    >>> rows = np.array([[0.5, 0.5], [0.5, 0.5], [0.0, 1.0]])  # equal rows: all are accepted
    >>> verify([0, 1], rows[:2], rows, np.random.default_rng(0))
    [0, 1, 1]
    """
    check_rows(guesses, p_draft, p_target)
    for t, token in enumerate(guesses):
        if not accept(min(p_target[t][token] / p_draft[t][token], 1), rng):  # [3]
            return guesses[:t] + [sample(residual(p_target[t], p_draft[t]), rng)]  # [4]
    return guesses + [sample(p_target[-1], rng)]  # [5]


def speculative_step(x, n_left, rng, target: Model, K, make_guesses: Guess,
                     test: Test = verify):
    """Run one round of any decoder.

    `make_guesses(x, k, rng)` returns up to k guesses and the distributions they were sampled
    from. The round is exact if `test` is exact for guesses drawn from these
    distributions. `test` returns the guesses that it accepts and one more token, so n_left - 1
    guesses are enough.
    """
    guesses, p_draft = make_guesses(x, min(K, n_left - 1), rng)  # [1]
    p_target = target(x + guesses, len(guesses) + 1)  # [2]; a Tree can be added to x too
    ids = test(guesses, p_draft, p_target, rng)  # [3] [4] [5]
    return Round(ids, guesses, p_draft, p_target, n_accepted=len(ids) - 1)


def make_step(target: Model, K, make_guesses: Guess, test: Test = verify) -> Step:
    """Return the step `(x, n_left, rng) -> Round` of a decoder: a guess and a rule."""
    def step(x, n_left, rng):
        return speculative_step(x, n_left, rng, target, K, make_guesses, test)

    return step


def draft_and_verify(draft: Model, target: Model, K, test: Test = verify) -> Step:
    """Return the step of both papers, or the same step with a different rule."""
    return make_step(target, K, partial(guess, draft=draft), test)


def autoregressive_step(x, n_left, rng, model: Model):
    """Sample one token from the model itself: Chen et al. (2023) Alg. 1."""
    p_target = model(x, 1)
    check_row(p_target[-1])
    token = sample(p_target[-1], rng)
    return Round([token], guesses=[], p_draft=[], p_target=p_target, n_accepted=0)


def generate(x: list[int], step: Step, N: int, rng: HasRandom,
             stop: Stop = ()) -> Iterator[Round]:
    """Run `step` until there are N new tokens, or one of the stop tokens; yield every round.

    `stop` may also be a function of the new tokens so far: the text ends as soon as it returns
    True. It sees no later token (a stopping time), so a text's distribution stays exact.

    The `ids` of a round are cut after a stop token; joined, the `ids` of all rounds are the new
    text. ValueError if x is empty, x or `stop` contains anything but token ids, N is not a
    whole number >= 0, `rng` is not a generator, or a step returns more tokens than are wanted.

    >>> row = [0.0, 1.0, 0.0]  # token 1 follows every text
    >>> always_1 = lambda ids, n_last: np.array([row] * n_last)
    >>> step = draft_and_verify(always_1, always_1, K=2)
    >>> [result.ids for result in generate([0], step, 4, np.random.default_rng(0))]
    [[1, 1, 1], [1]]
    """
    x = token_ids(x)  # a copy, so that the caller's list does not grow
    stop = stop if callable(stop) else frozenset(token_ids(stop, "stop"))
    check_start(x, N, rng)
    start = len(x)
    end = start + N
    while len(x) < end:
        n_left = end - len(x)
        result = step(x, n_left, rng)
        check_length(result.ids, n_left)
        ids = up_to_stop(result.ids, stop, x[start:])
        result = result._replace(ids=ids, n_accepted=min(result.n_accepted, len(ids)))
        # Erratum: Chen et al. (2023) Alg. 2, read literally, increases n after each accepted
        # guess and then reads guess t at n + t, so it would skip positions. Here n is len(x),
        # which grows only after the test.
        x += result.ids
        yield result
        if has_ended(x[start:], stop):
            return


def up_to_stop(ids, stop, new=()):
    """Return the tokens up to and including the first that ends a text; `new` precedes them."""
    for i in range(len(ids)):
        if has_ended([*new, *ids[: i + 1]], stop):
            return ids[: i + 1]
    return ids


def has_ended(new, stop):
    """Return whether a text ends with its last new token."""
    return stop(new) if callable(stop) else new[-1] in stop


def complete(x, step: Step, N, rng, stop=()):
    """Run `generate` to its end; return x followed by all new tokens."""
    x = token_ids(x)  # an iterator can be read only once
    new = [token for result in generate(x, step, N, rng, stop) for token in result.ids]
    return x + new


def autoregressive_sampling(x: list[int], model: Model, N: int, rng: HasRandom,
                            stop: Stop = ()) -> list[int]:
    """Draw N tokens with one pass of the model per token: plain decoding, without speculation.

    Returns x and exactly N new tokens, or fewer if one of them is a stop token, which is then
    the last. ValueError as in `generate`. Chen et al. (2023) Alg. 1.

    >>> row_after = np.eye(10)[1:]  # row_after[i] gives token i + 1 probability 1
    >>> count_up = lambda ids, n_last: row_after[ids[-n_last:]]
    >>> autoregressive_sampling([3], count_up, 4, np.random.default_rng(0))
    [3, 4, 5, 6, 7]
    """
    return complete(x, partial(autoregressive_step, model=model), N, rng, stop)


def speculative_sampling(x: list[int], draft: Model, target: Model, N: int, K: int,
                         rng: HasRandom, stop: Stop = ()) -> list[int]:
    """Draw N tokens from the target's distribution, up to K + 1 per target pass. Lossless.

    The text has exactly the distribution of `autoregressive_sampling(x, target, N, rng, stop)`.
    ValueError as in `generate`, or if K is not a whole number >= 1, or the rows of both models
    differ in length.
    Chen et al. (2023) Alg. 2; Leviathan et al. (2023) Alg. 1.

    >>> row_after = np.eye(10)[1:]  # row_after[i] gives token i + 1 probability 1
    >>> count_up = lambda ids, n_last: row_after[ids[-n_last:]]
    >>> speculative_sampling([0], count_up, count_up, 6, 2, np.random.default_rng(0))
    [0, 1, 2, 3, 4, 5, 6]
    """
    if not is_whole(K) or K < 1:
        raise ValueError(f"need a whole number K >= 1 of guesses per round, got {K!r}")
    return complete(x, draft_and_verify(draft, target, K), N, rng, stop)


# ---- checks of arguments: each ValueError says what is needed and what came

def token_ids(tokens, name="x"):
    """Return tokens as a list of Python's integers; ValueError if a token is not an integer."""
    try:
        return [operator.index(token) for token in tokens]
    except TypeError:
        raise ValueError(f"need {name} to be a sequence of token ids, whole numbers, got "
                         f"{tokens!r:.80}") from None


def is_whole(number):
    """Return whether a number is an integer, Python's or NumPy's; True and False are not."""
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def check_start(x, N, rng):
    """Raise ValueError unless x has a token, N is a whole number >= 0 and rng a generator."""
    if len(x) == 0:
        raise ValueError("need at least one token to start from, got an empty sequence")
    if not is_whole(N) or N < 0:
        raise ValueError(f"need a whole number N >= 0 of new tokens, got {N!r}")
    if not hasattr(rng, "random"):
        raise ValueError(f"need rng to be a np.random.Generator, got {rng!r}")


def check_length(ids, n_left):
    """Raise ValueError unless a round has at least one token and no more than are wanted."""
    if not 1 <= len(ids) <= n_left:
        raise ValueError(f"need a step that appends 1 to n_left = {n_left} tokens "
                         "(make_guesses(x, k, rng) may return k guesses at most), got "
                         f"{len(ids)}")


def check_rows(guesses, p_draft, p_target):
    """Raise ValueError unless the rows fit the guesses, and each row sums to 1."""
    k = len(guesses)
    # `verify` joins lists by +, which would add arrays number by number.
    if not isinstance(guesses, list):
        raise ValueError(f"need a list of guesses, got {type(guesses).__name__}")
    for row in (*p_draft, *p_target):
        check_row(row)
    if len(p_draft) != k or len(p_target) != k + 1:
        raise ValueError(f"need k rows of p_draft and k + 1 of p_target for k = {k} guesses, "
                         f"got {len(p_draft)} and {len(p_target)}")
    for t, token in enumerate(guesses):
        n_vocab = len(p_draft[t])
        if n_vocab != len(p_target[t]):
            raise ValueError(f"need draft and target with one vocabulary, got sizes "
                             f"{n_vocab} and {len(p_target[t])}")
        if not is_whole(token) or not 0 <= token < n_vocab:
            raise ValueError(f"need guesses in 0 .. n_vocab - 1 = {n_vocab - 1}, got "
                             f"{token!r} for guess {t}")
        if not p_draft[t][token] > 0:
            raise ValueError(f"need p_draft[t] to be the distribution of guess t, got "
                             f"probability {p_draft[t][token]} for guess {t} (token {token})")


def check_row(row):
    """Raise ValueError unless the row has one axis and sums to 1, to within 1e-3."""
    if not isinstance(row, np.ndarray | np.generic | Sequence):
        raise ValueError(f"need rows that are NumPy arrays, got {type(row).__name__} (a "
                         "tensor's .numpy() is one)")
    if np.ndim(row) != 1:
        raise ValueError("need a model that returns rows of shape [n_last, n_vocab], got a row "
                         f"of shape {np.shape(row)} instead of [n_vocab]")
    total = np.sum(row)
    # A comparison with NaN is False, so `not .. <` refuses a NaN too.
    if not abs(total - 1) < 1e-3:
        raise ValueError(f"need rows of probabilities, which sum to 1 (sampling.with_sampling "
                         f"makes them from logits), got a row with sum {total}")
