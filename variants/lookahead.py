"""Fu et al. (2024), "Break the Sequential Dependency ... Using Lookahead Decoding". Lossless.

Adds to jacobi.py: a pool of n-grams. Jacobi's iteration often writes the right tokens at the
wrong position, so its runs are kept, and guessed when the text reaches their first token.

    ngram      N, the length of a run; a column has N - 1 levels, its guesses of N - 1 passes
    window     W columns: level l of column i is i + l tokens after the last token of x
    trunk      level 0 of all columns, which the other levels follow
    pool       token -> the last G n-grams seen after it, the latest last

One pass over one token tree does both (the paper's lookahead branch and verification branch):

    x[-1] -- t1 -- t2 .. trunk        x[-1] -- b -- c -- d     n-grams of the pool
     |       |     |                      \
     a1      b1    c1    level 1           b' - c' - d'        guesses with one-hot rows
     |       |     |
     a2      b2    c2    level 2, N = 4: the pass finds a3 b3 c3; (t1 b1 b2 b3) joins the pool

Subtle: the window's nodes are in the tree to be continued. They are scored but not tested,
because they are not proposals. Their tokens change no distribution, so they may be any tokens;
they start as copies of x.
"""

from itertools import cycle, islice
from typing import Annotated

from speculative import Step, speculative_step
from variants.registry import Decoder, Flag, Models, whole
from variants.shared.branches import Tree, plant, with_tree_sampling
from variants.tree import verify_tree


def refill(window, x, columns, ngram):
    """Return the window with new columns, copied from x, and with x[-1] as its root."""
    fresh = [list(islice(cycle(x), i, i + ngram - 1)) for i in range(len(window), columns)]
    first, *others = window + fresh
    return [[x[-1], *first[1:]], *others]


def column_paths(window):
    """Return the path of each column, from the root along the trunk and down its levels.

    >>> column_paths([["x", "a1", "a2"], ["t1", "b1", "b2"], ["t2", "c1", "c2"]])
    [['a1', 'a2'], ['t1', 'b1', 'b2'], ['t1', 't2', 'c1', 'c2']]
    """
    trunk = [column[0] for column in window[1:]]
    return [trunk[:i] + column[1:] for i, column in enumerate(window)]


def remember(known, tokens, size):
    """Put an n-gram into the pool once, as the latest; drop the oldest beyond `size`."""
    key, *rest = tokens
    others = [run for run in known.get(key, []) if run != rest]
    known[key] = [*others, rest][-size:]


def make_tree(ngrams, paths, k, n_vocab):
    """Return a tree of at most k levels, and the last node of each path.

    The n-grams are proposals, the latest first; the paths are not. Each path is longer than
    the one before it; those of more than k levels are left out.
    """
    tree = plant([ngram[:k] for ngram in reversed(ngrams)], n_vocab)
    ends = [tree.add_path(path) for path in paths if len(path) <= k]
    return tree, ends


def build(models: Models,
          columns: Annotated[int, Flag(whole, "columns of the window, continued in every "
              "pass")] = 5,
          ngram: Annotated[int, Flag(whole, "length of the runs of tokens kept")] = 4,
          pool: Annotated[int, Flag(whole, "runs kept for each first token")] = 5) -> Step:
    """Return the step of one text; the `guesses` of its Rounds are the tested ones only.

    The window moves as far as the text and is filled up at once. (The authors' code by default
    moves it by one position, and fills it level by level in the first rounds.)
    """
    if ngram < 2:
        raise ValueError(f"need --ngram >= 2, got {ngram}")
    target = with_tree_sampling(models.target, **models.sampling)
    window: list[list] = []
    ends: list[int] = []  # the node at the end of each column's path, in this round's tree
    known: dict[int, list] = {}  # the pool

    def guess(x, k, rng):
        nonlocal window, ends
        window = refill(window, x, columns, ngram)
        tree, ends = make_tree(known.get(x[-1], []), column_paths(window), k,
                               models.target.n_vocab)
        return tree, [row for _, row in tree.proposals]

    def step(x, n_left, rng):
        nonlocal window
        result = speculative_step(x, n_left, rng, target, columns + ngram, guess, verify_tree)
        for column, end in zip(window, ends):
            column.append(int(result.p_target[1 + end].argmax()))
            remember(known, column, pool)
        # The window moves past the new text; a column loses its first token to the pool.
        window = [column[1:] for column in window[len(result.ids) - 1 : len(ends)]]
        tree = result.guesses
        n = len(tree.proposals)  # the first nodes; those of the window follow them
        return result._replace(guesses=Tree(tree.tokens[:n], tree.parents[:n], tree.proposals))

    return step


DECODER = Decoder(
    "lookahead", "Fu et al. (2024)", "https://arxiv.org/abs/2402.02057",
    idea="keeps the runs of tokens that Jacobi's iteration wrote, and tries them again",
    family="no draft model",
    guess=make_tree, test=verify_tree, build=build, needs=())
