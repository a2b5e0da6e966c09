"""Unigram, bigram and trigram losses of a text: what a model must beat.

Interpolated absolute discounting:

    p(w | u v) = max(c(u v w) - D, 0) / c(u v) + D n(u v) / c(u v) p(w | v)

c counts, n(u v) is the number of different followers, D = n_1 / (n_1 + 2 n_2) from how many n-grams
occur once and twice; under the unigrams lies the uniform law.
Reference: Ney, Essen and Kneser (1994); Chen and Goodman (1999) section 2.4.
"""
import numpy as np


def lookup(keys, counts, wanted):
    """The counts of the wanted keys, 0 where a key never occurred; `keys` is sorted."""
    i = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[i] == wanted, counts[i], 0).astype(np.float64)


def ngram_keys(ids, n, n_vocab):
    """Every n-gram of ids as one number, [len(ids) - n + 1]."""
    keys = np.zeros(len(ids) - n + 1, np.int64)
    for j in range(n):
        keys = keys * n_vocab + ids[j : len(ids) - n + 1 + j]
    return keys


def ngram_losses(train, valid, n_vocab, n_max=3):
    """Nats per token on valid[n_max - 1 :] of the models of order 1 .. n_max fitted to train.

    >>> ids = np.array([0, 1, 2] * 50)
    >>> uni, bi = ngram_losses(ids, ids, 3, n_max=2)
    >>> round(uni, 3), bi < 0.1
    (1.099, True)
    """
    train, valid = np.asarray(train, np.int64), np.asarray(valid, np.int64)
    p, losses = np.full(len(valid) - n_max + 1, 1 / n_vocab), []
    for n in range(1, n_max + 1):
        keys, counts = np.unique(ngram_keys(train, n, n_vocab), return_counts=True)
        once, twice = (counts == 1).sum(), (counts == 2).sum()
        D = once / (once + 2 * twice) if once else 0.5
        contexts, first = np.unique(keys // n_vocab, return_index=True)
        followers, totals = np.diff(np.append(first, len(keys))), np.add.reduceat(counts, first)
        wanted = ngram_keys(valid, n, n_vocab)[n_max - n :]
        total, follow = (lookup(contexts, c, wanted // n_vocab) for c in (totals, followers))
        kept = np.maximum(lookup(keys, counts, wanted) - D, 0)
        safe = np.maximum(total, 1)  # a context never seen: the lower order alone
        p = np.where(total > 0, kept / safe + D * follow / safe * p, p)
        losses.append(float(-np.log(p).mean()))
    return losses
