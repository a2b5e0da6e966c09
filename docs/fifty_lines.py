"""Speculative decoding in 50 lines of code: a model, a guess, an acceptance rule, a loop.

docs/learn.md explains it; speculative.py is the same algorithm with input checks.
"""

import argparse

import numpy as np


def make_model(sharpness, seed=0, n_vocab=8):
    """Return a toy with GPT-2's interface: the next token depends on the last two tokens."""
    scores = sharpness * np.random.default_rng(seed).normal(size=(n_vocab, n_vocab, n_vocab))
    table = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)  # softmax

    def model(ids, n_last):  # -> [n_last, n_vocab]: the last row is for the token after ids
        # The row of `end` is for the token after ids[:end]; the n_last ends are up to len(ids).
        ends = range(len(ids) - n_last + 1, len(ids) + 1)
        return np.array([table[ids[end - 2], ids[end - 1]] for end in ends])

    return model


def sample(probs, rng):
    """Draw a token: the first whose cumulative probability exceeds a uniform number."""
    cdf = np.cumsum(probs)
    return int(np.argmax(rng.random() < cdf / cdf[-1]))


def autoregressive(x, target, N, rng):
    """Return x and N more tokens: one target pass for each."""
    x = list(x)
    for _ in range(N):
        x.append(sample(target(x, 1)[-1], rng))
    return x


def guess(x, k, rng, draft):
    """Draw k tokens from the draft; return them and the distributions they were drawn from."""
    guesses, p_draft = [], []
    for _ in range(k):
        p_draft.append(draft(x + guesses, 1)[-1])
        guesses.append(sample(p_draft[-1], rng))
    return guesses, p_draft


def verify(guesses, p_draft, p_target, rng):
    """Return the accepted guesses and one more token."""
    for t, token in enumerate(guesses):
        if rng.random() >= p_target[t][token] / p_draft[t][token]:
            residual = np.maximum(p_target[t] - p_draft[t], 0)
            return guesses[:t] + [sample(residual / residual.sum(), rng)]
    return guesses + [sample(p_target[-1], rng)]


def speculative(x, draft, target, N, K, rng):
    """Return x and N more tokens of the target's distribution; count the target passes."""
    x = list(x)
    end = len(x) + N
    n_passes = 0
    while len(x) < end:
        # verify adds a token of its own, so the last of the N tokens needs no guess.
        guesses, p_draft = guess(x, min(K, end - len(x) - 1), rng, draft)
        p_target = target(x + guesses, len(guesses) + 1)  # all guesses in one pass
        x += verify(guesses, p_draft, p_target, rng)
        n_passes += 1
    return x, n_passes


if __name__ == "__main__":
    argparse.ArgumentParser("python -m docs.fifty_lines", description=__doc__).parse_args()
    target, draft = make_model(sharpness=1.5), make_model(sharpness=0.7)
    x, n_passes = speculative([0, 1], draft, target, N=1000, K=4, rng=np.random.default_rng(0))
    print("1000 tokens in", n_passes, "passes of the target")

    texts = [speculative([0, 1], draft, target, 2, 4, np.random.default_rng(i))[0]
             for i in range(20_000)]
    # A text is the prompt [0, 1], a first and a second token; text[3] is the second.
    seen = np.bincount([text[3] for text in texts], minlength=8) / len(texts)
    # The exact distribution of the second token is a sum over all first tokens.
    first = target([0, 1], 1)[0]
    exact = first @ [target([1, token], 1)[0] for token in range(8)]
    print("second token, speculative:", seen.round(3))
    print("second token, target:     ", exact.round(3))
