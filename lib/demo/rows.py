"""What a page needs of a round's distributions: their likeliest tokens, and where a number falls.

    row       the distributions of one position: the draft's, and the target's
    top       the tokens of it that are kept: the likeliest of either, the guess, what came
    others    all tokens but these, together
    from, to  a uniform u with from <= u * mass < to draws this token when one is drawn here

A row of the bundled models has some thousand entries and a text some hundred rows: a page cannot
hold them all. What it holds decides exactly as `sampling.sample` does on the whole row, or says
"one of the others".
"""

import numpy as np

from sampling import residual

UNTESTED = 8  # tokens for the rows after the last tested guess, which matter only if a tick moves


def rows_of(round, verified, text_of, n):
    """Each position's row, cut to its likeliest tokens: one for each guess, one for the bonus."""
    k, n_tested = len(round.guesses), round.n_tested
    came = [*round.ids, *[None] * (k + 1)]
    return [row_of(round.p_draft[t] if t < k else None, round.p_target[t],
                   {came[t], round.guesses[t] if t < k else None} - {None}, verified, text_of,
                   n if t <= n_tested else min(n, max(1, UNTESTED // k)))
            for t in range(k + 1)]


def row_of(p_draft, p_target, wanted, verified, text_of, n):
    """{"top": [[id, text, p_draft, p_target, from, to], ..], "others": [p_draft, p_target, both]}.

    And "mass", the sum that from and to are parts of: 1 but for rounding. from and to are left out
    of a token that cannot be drawn, all three where `verify` did not decide.
    Without a draft's row, p_draft is None: the bonus token is drawn from the target's.
    """
    draft = np.zeros(len(p_target)) if p_draft is None else p_draft
    ids = {int(token) for token in {*likeliest(draft, n), *likeliest(p_target, n), *wanted}}
    ids = sorted(ids, key=lambda token: (-p_target[token], -draft[token], token))
    shown = lambda p: float(f"{p:.6g}")
    top = [[i, text_of(i), None if p_draft is None else shown(draft[i]), shown(p_target[i])]
           for i in ids]
    mass = {}
    if verified:
        cdf = np.cumsum(p_target if p_draft is None else residual(p_target, draft))
        mass = {"mass": float(cdf[-1])}
        for token, entry in zip(ids, top):
            start, end = float(cdf[token - 1]) if token else 0.0, float(cdf[token])
            entry += [start, end] if start < end else []
    rest = [max(float(each.sum() - each[ids].sum()), 0.0)
            for each in (draft, p_target, np.minimum(draft, p_target))]
    return {"top": top, "others": [shown(p) for p in rest], **mass}


def likeliest(row, n):
    """The n most probable tokens of a row, in no order, without those of probability 0."""
    best = np.flatnonzero(row)
    return best[np.argpartition(row[best], -n)[-n:]] if len(best) > n else best


def add_branches(guesses, round):
    """Tell of guesses that are a tree (variants/shared/branches.py) who follows whom, and which led on.

    The last id may equal a guess that was rejected, so it is not said to be one.
    """
    tree, node = round.guesses, -1
    for guess, parent in zip(guesses, tree.parents):
        guess["parent"] = int(parent)
    for token in round.ids[:-1]:
        node = tree.child(node, token)
        if node is None:
            return
        guesses[node]["led_on"] = True
