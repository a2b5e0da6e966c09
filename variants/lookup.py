"""Saxena (2023), "Prompt Lookup Decoding". Lossless.

What it adds to speculative.py: a draft that is no model. Text repeats itself, so the guesses are
copied from where the last few ids stood before.

    x           the ids so far
    suffix      the last n ids of x, n <= max_ngram: what is looked up
    source      the place behind an earlier occurrence of the suffix: copying starts there
    max_ngram   the longest suffix that is tried first

A copied guess is no draw, so the law that it comes from is one-hot: all mass on itself. `verify`
then keeps it with the target's own probability of it, and resamples from the target without it.
"""

import numpy as np

from speculative import Round, verify


def find_source(x, max_ngram):
    """The place in x to copy from: behind the latest earlier occurrence of the longest suffix.

    None if not even the last id occurred before. Saxena (2023) takes the earliest occurrence; in
    running text the latest is the better guide.
    """
    for n in range(min(max_ngram, len(x) - 1), 0, -1):
        for start in range(len(x) - n - 1, -1, -1):  # not the suffix itself, but it may overlap it
            if x[start : start + n] == x[-n:]:
                return start + n
    return None


def copy(x, source, k):
    """k ids copied from `source` on; past the end of x it copies its own copies, as LZ77 does."""
    text = list(x)
    for i in range(k):
        text.append(text[source + i])
    return text[len(x) :]


def one_hot_rows(ids, n_vocab):  # -> [len(ids), n_vocab]
    """The laws of ids that no chance was used for."""
    rows = np.zeros((len(ids), n_vocab))
    rows[np.arange(len(ids)), ids] = 1.0
    return rows


def lookup_step(x, room, rng, target, K, max_ngram=3):
    """One round with copied guesses.

    Parameters
    ----------
    x, room, rng
        As for every step: speculative.py.
    target : callable `(ids, n_last) -> [n_last, n_vocab]` of probabilities
    K : int
        Guesses a round; none, and so a plain step of the target, if there is nothing to copy.
    max_ngram : int, >= 1

    Returns
    -------
    Round

    Examples
    --------
    A target that counts 0 1 2 0 1 2 .. is guessed right once it has begun to repeat itself.

    >>> target = lambda ids, n_last: np.eye(3)[(np.array(ids[-n_last:]) + 1) % 3]
    >>> lookup_step([0, 1, 2, 0], 9, np.random.default_rng(0), target, K=4).ids
    [1, 2, 0, 1, 2]
    """
    source = find_source(x, max_ngram)
    guesses = [] if source is None else copy(x, source, min(K, room - 1))
    p_target = target(x + guesses, len(guesses) + 1)
    p_draft = one_hot_rows(guesses, p_target.shape[-1])
    return Round(verify(guesses, p_draft, p_target, rng), guesses, p_draft, p_target)
