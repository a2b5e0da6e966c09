"""Speculative sampling: the algorithm of both papers, in one notation.

A small model, the draft, guesses a few tokens; the large model, the target, scores all of them in
one pass; a test keeps as many as can be kept without changing the target's law by a hair
(Theorem 1: docs/theorem1.md, checked in tests/test_speculative.py).

    here               Chen et al. (2023)      Leviathan et al. (2023)
    target, p_target   target model, q         target model M_p, p
    draft, p_draft     draft model, p          approximation model M_q, q
    K                  K, lookahead            gamma
    x                  x_1 .. x_n              prefix
    guesses            x~_1 .. x~_K            x_1 .. x_gamma
    N                  T - t                   (one run per round)

    x         the ids so far, prompt included
    k <= K    guesses in this round
    t         index in the round, 0 .. k - 1
    room      how many ids are still wanted, at most
    rng       np.random.Generator, the only source of chance

`target` and `draft` are callables `model(ids, n_last) -> [n_last, n_vocab]` of probabilities. The
last row is the law of the token after `ids`, the row before it the law of the token after
`ids[:-1]`, and so on: row -1 - i follows `ids[: len(ids) - i]`.

The algorithm, one round:

    [1] guess     k ids from the draft, one after the other
    [2] score     one pass of the target over all of them: k + 1 rows of p_target
    [3] accept    keep guess t with probability min(1, p_target[t] / p_draft[t]), else stop there
    [4] resample  the first one rejected is replaced by a draw from
                  norm(max(0, p_target[t] - p_draft[t]))
    [5] bonus     if none was rejected: one id more, from p_target[k]

          Chen et al. (2023) Alg. 2             Leviathan et al. (2023) Alg. 1
    [1]   "Sample draft auto-regressively"      "Sample gamma guesses from M_q"
    [2]   "In parallel, compute K + 1 sets"     "Run M_p in parallel"
    [3]   "if r < min(1, q/p)"                  "Determine the number of accepted guesses n"
    [4]   "else sample from (q - p)_+"          "Adjust the distribution from M_p if needed"
    [5]   "If all tokens are accepted"          the same line, with n = gamma

Erratum: Chen et al. (2023) Alg. 2 advances n inside the loop that indexes with n + t. Read
literally it skips positions; n must stand still until that loop is left.

A decoder is a `step(x, room, rng) -> Round`; `generate` drives any of them.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from sampling import accept, residual, sample


class Round(NamedTuple):
    """What one round did: enough to stream, count, draw and replay it."""

    ids: list  # what it appends to x: 1 .. k + 1 ids
    guesses: list  # the draft's k ids, kept or not
    p_draft: np.ndarray  # [k, n_vocab], row t the law that guess t was drawn from
    p_target: np.ndarray  # [k + 1, n_vocab], row t the target's law at that place

    @property
    def n_kept(self):
        """How many guesses became text: the common start of `ids` and `guesses`."""
        pairs = list(zip(self.ids, self.guesses))
        return next((t for t, (token, guess) in enumerate(pairs) if token != guess), len(pairs))

    @property
    def n_examined(self):
        """How many guesses were put to the test: those kept and the first that failed."""
        return min(self.n_kept + 1, len(self.guesses), len(self.ids))


def guess(x, draft, k, rng):
    """k ids from the draft, one after the other, and the laws they were drawn from."""
    guesses, p_draft = [], []
    for _ in range(k):
        p_draft.append(draft(x + guesses, 1)[-1])
        guesses.append(sample(p_draft[-1], rng))
    return guesses, p_draft


def verify(guesses, p_draft, p_target, rng):
    """Keep the guesses that can be kept, and add one token of the target's: steps [3] to [5].

    The ids returned have exactly the target's law, whatever the draft was (Theorem 1), provided
    that guess t was drawn from `p_draft[t]`.

    Parameters
    ----------
    guesses : list of int, length k >= 0
    p_draft : [k, n_vocab]
        Row t is the very law that `guesses[t]` was drawn from, after temperature, top-k and so on.
    p_target : [k + 1, n_vocab]
        Row t is the target's law after `guesses[:t]`.
    rng : np.random.Generator

    Returns
    -------
    list of int, length 1 .. k + 1
        The accepted guesses, then the resampled or the bonus token.

    Raises
    ------
    ValueError
        If the numbers of guesses and rows do not fit together, the two models' vocabularies
        differ, or a guess has no probability under the law that it is said to come from.

    Notes
    -----
    Guess t is accepted with probability `min(1, p_target[t][guess] / p_draft[t][guess])`.
    Only + - * / min and max touch the probabilities: the tests run this on Fractions too.

    References
    ----------
    Chen et al. (2023) Alg. 2 and Theorem 1; Leviathan et al. (2023) Alg. 1 and Appendix A.1.

    Examples
    --------
    Equal laws: every guess is kept, and the bonus comes from the last row.

    >>> law = np.array([[0.5, 0.5], [0.5, 0.5], [0.0, 1.0]])
    >>> verify([0, 1], law[:2], law, np.random.default_rng(0))
    [0, 1, 1]
    """
    check_rows(guesses, p_draft, p_target)
    for t, token in enumerate(guesses):
        # Subtle: min(1, nan) is 1, min(nan, 1) is nan, and accept refuses a nan.
        if not accept(min(p_target[t][token] / p_draft[t][token], 1), rng):  # [3]
            return guesses[:t] + [sample(residual(p_target[t], p_draft[t]), rng)]  # [4]
    return guesses + [sample(p_target[-1], rng)]  # [5]


def check_rows(guesses, p_draft, p_target):
    """Raise the ValueError that `verify` promises for rows that do not fit."""
    k = len(guesses)
    if len(p_draft) != k or len(p_target) != k + 1:
        raise ValueError(f"need k rows of p_draft and k + 1 of p_target for k = {k} guesses, "
                         f"got {len(p_draft)} and {len(p_target)}")
    for t, token in enumerate(guesses):
        if len(p_draft[t]) != len(p_target[t]):
            raise ValueError(f"need draft and target with one vocabulary, got sizes "
                             f"{len(p_draft[t])} and {len(p_target[t])}")
        if not p_draft[t][token] > 0:
            raise ValueError(f"need p_draft[t] to be the law that guess t was drawn from, got "
                             f"probability {p_draft[t][token]} for guess {t} (id {token})")


def speculative_step(x, room, rng, draft, target, K, verify=verify):
    """One round of both papers. Lossless: the ids have the target's law (if `verify` keeps it)."""
    k = min(K, room - 1)  # one place is the target's own
    guesses, p_draft = guess(x, draft, k, rng)  # [1]
    p_target = target(x + guesses, k + 1)  # [2]
    return Round(verify(guesses, p_draft, p_target, rng), guesses, p_draft, p_target)


def autoregressive_step(x, room, rng, model):
    """One token from the model itself: Chen et al. (2023) Alg. 1."""
    p_target = model(x, 1)
    return Round([sample(p_target[-1], rng)], [], [], p_target)


def generate(x, step, N, rng, stop=()):
    """Run `step` until N new ids stand, or one of the stop ids; yield every round.

    Parameters
    ----------
    x : sequence of int
        The prompt's ids.
    step : callable `(x, room, rng) -> Round`
        One round of any decoder. It may append 1 .. `room` ids.
    N : int, >= 0
    rng : np.random.Generator
    stop : collection of int
        The first of these ids ends the text, wherever in a round it stands; it is the last id.

    Yields
    ------
    Round
        As the step returned it, but `ids` cut behind a stop id: the ids of all rounds, one after
        the other, are the text.

    Raises
    ------
    ValueError
        If x is empty, N < 0, or `rng` is not a generator.

    Examples
    --------
    >>> always_1 = lambda ids, n_last: np.eye(3)[[1] * n_last]
    >>> step = partial(speculative_step, draft=always_1, target=always_1, K=2)
    >>> [round.ids for round in generate([0], step, 4, np.random.default_rng(0))]
    [[1, 1, 1], [1]]
    """
    if len(x) == 0:
        raise ValueError("need at least one id to start from, got an empty sequence")
    if N < 0:
        raise ValueError(f"need N >= 0 new tokens, got {N}")
    if not hasattr(rng, "random"):
        raise ValueError(f"need rng to be a np.random.Generator, got {rng!r}")
    x, end = list(x), len(x) + N
    while len(x) < end:
        round = step(x, end - len(x), rng)
        round = round._replace(ids=cut(round.ids, stop))
        x += round.ids
        yield round
        if round.ids[-1] in stop:
            return


def cut(ids, stop):
    """The ids up to and with the first stop id."""
    return next((ids[: i + 1] for i, token in enumerate(ids) if token in stop), ids)


def run(x, step, N, rng, stop=(), on_round=None):
    """`generate` to its end: the prompt followed by the new ids, as one list."""
    x = list(x)
    for round in generate(x, step, N, rng, stop):
        x += round.ids
        if on_round:
            on_round(round)
    return x


def autoregressive_sampling(x, model, N, rng, stop=(), on_round=None):
    """Draw N tokens one after the other: the decoding that speculation must equal.

    Parameters
    ----------
    x : sequence of int
        The prompt's ids.
    model : callable `(ids, n_last) -> [n_last, n_vocab]` of probabilities
    N : int
        New tokens wanted.
    rng : np.random.Generator
    stop : collection of int, optional
        Ids that end the text early.
    on_round : callable `(Round) -> None`, optional
        Called after every round.

    Returns
    -------
    list of int
        x, then exactly N new ids; fewer only if a stop id came, which is then the last.

    Raises
    ------
    ValueError
        If x is empty or N < 0.

    References
    ----------
    Chen et al. (2023) Alg. 1.

    Examples
    --------
    >>> count_up = lambda ids, n_last: np.eye(10)[np.array(ids[-n_last:]) + 1]
    >>> autoregressive_sampling([3], count_up, 4, np.random.default_rng(0))
    [3, 4, 5, 6, 7]
    """
    return run(x, partial(autoregressive_step, model=model), N, rng, stop, on_round)


def speculative_sampling(x, draft, target, N, K, rng, stop=(), on_round=None):
    """Draw N tokens with the target's law, several for one pass of the target. Lossless.

    Parameters
    ----------
    x : sequence of int
        The prompt's ids.
    draft, target : callables `(ids, n_last) -> [n_last, n_vocab]` of probabilities
    N : int
        New tokens wanted.
    K : int, >= 1
        Guesses per round (fewer in a last round with less room).
    rng : np.random.Generator
    stop, on_round
        As in `autoregressive_sampling`.

    Returns
    -------
    list of int
        x, then exactly N new ids (fewer only if a stop id came), with the same law as
        `autoregressive_sampling(x, target, N, rng, stop)`.

    Raises
    ------
    ValueError
        If x is empty, N < 0, K < 1, or the two models' vocabularies differ.

    References
    ----------
    Chen et al. (2023) Alg. 2; Leviathan et al. (2023) Alg. 1.

    Examples
    --------
    A draft that always agrees: K + 1 tokens for one pass of the target.

    >>> passes = []
    >>> count_up = lambda ids, n_last: np.eye(10)[np.array(ids[-n_last:]) + 1]
    >>> speculative_sampling([0], count_up, count_up, 6, 2, np.random.default_rng(0),
    ...                      on_round=lambda round: passes.append(round.ids))
    [0, 1, 2, 3, 4, 5, 6]
    >>> passes
    [[1, 2, 3], [4, 5, 6]]
    """
    if K < 1:
        raise ValueError(f"need K >= 1 guesses a round, got {K}")
    step = partial(speculative_step, draft=draft, target=target, K=K)
    return run(x, step, N, rng, stop, on_round)
