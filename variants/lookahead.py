"""Fu et al. (2024), "Break the Sequential Dependency ... Using Lookahead Decoding". Lossless.

Adds to jacobi.py: a pool of n-grams. Jacobi's iteration often writes the right tokens at the
wrong position. So runs of N tokens that it wrote are kept in a pool, and guessed when the text
reaches their first token.

    here        Fu et al. (2024)
    ngram       N       the number of tokens of an n-gram
    n_columns   W       the number of columns of the window
    pool_size   G       the most n-grams in the pool for one first token
    column              N - 1 tokens, at levels 0 .. N - 2. In column i the token at level l is
                        a guess for the text's token i + l positions after x[-1]. The last pass
                        wrote the last level, the pass before it the level before, and so on
    window              the columns 0 .. W - 1. Level 0 of column 0 is x[-1] itself
    trunk               the tokens of level 0 of all columns; each column hangs from the trunk
    pool                first token -> the other N - 1 tokens of its n-grams, the oldest first

One pass over one token tree both continues the columns (the paper's lookahead branch) and tests
guesses (its verification branch). Here N = 4 and W = 3, and the pool has two n-grams that begin
with x[-1]:

    column   0      1     2
           x[-1] -- t1 -- t2   level 0, the trunk       x[-1] -- b -- c -- d
             |      |     |                               |
             a1     b1    c1   level 1                    + -- b' -- c' -- d'
             |      |     |
             a2     b2    c2   level 2

(a) The pass gives the target's best tokens a3, b3 and c3 after the three columns.
(b) Three n-grams join the pool: x[-1] a1 a2 a3, and t1 b1 b2 b3, and t2 c1 c2 c3.
(c) Each column loses its first token: t1 b1 b2 b3, column 1, becomes b1 b2 b3. Now it begins
    two positions after x[-1]. If the round appended two tokens, this is the position of the new
    x[-1], so column 1 becomes column 0.
(d) New columns, which are copies of runs of x, are added at the window's end. The next round
    begins.

Subtle: the nodes of the window are not proposals, so they get rows but no test. The tokens of
these nodes change no distribution, so they may be any tokens.

The window moves as far as the text and is filled up at once. By default the authors' code moves
it by one position, and fills it level by level in the first rounds.
"""

from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from typing import Annotated

from speculative import Step, speculative_step
from variants.registry import Decoder, Flag, Models, needing, whole
from variants.shared.branches import Tree, row_after, tree_of_paths, with_tree_sampling
from variants.tree import verify_tree


def refill(window, x, n_columns, ngram):
    """Return the window with n_columns columns, and with x[-1] as the root of the trunk. (d)

    A new column i is ngram - 1 tokens of x from index i on. A short x is repeated.

    >>> refill([[5, 6, 7]], [0, 1, 2, 3], n_columns=3, ngram=4)
    [[3, 6, 7], [1, 2, 3], [2, 3, 0]]
    """
    n_tokens = n_columns + ngram  # at least as many as the new columns read
    repeated = list(islice(cycle(x), n_tokens))
    new = [repeated[i : i + ngram - 1] for i in range(len(window), n_columns)]
    first, *others = window + new
    first = [x[-1], *first[1:]]
    return [first, *others]


def column_paths(window):
    """Return the path of each column in the tree, along the trunk and then down its levels.

    The root, x[-1], is not part of a path.

    >>> column_paths([["x", "a1", "a2"], ["t1", "b1", "b2"], ["t2", "c1", "c2"]])
    [['a1', 'a2'], ['t1', 'b1', 'b2'], ['t1', 't2', 'c1', 'c2']]
    """
    trunk = [column[0] for column in window[1:]]  # column 0 begins with x[-1], the root
    paths = []
    for i, column in enumerate(window):
        to_column = trunk[:i]  # its last token, trunk[i - 1], is level 0 of column i
        paths.append(to_column + column[1:])
    return paths


def add_to_pool(pool, tokens, size):
    """Put an n-gram into the pool once, as the latest; drop the oldest n-gram beyond `size`."""
    first, *run = tokens  # the pool has the run under the first token
    others = [other for other in pool.get(first, []) if other != run]
    pool[first] = [*others, run][-size:]


def make_tree(runs, paths, k, n_vocab):
    """Return a tree of at most k levels, and the last node of each path that fits.

    The runs of the pool are proposals, the latest first. The paths of the columns are not. The
    last paths, which are the longest, may not fit.
    """
    tree = tree_of_paths([run[:k] for run in reversed(runs)], n_vocab)
    ends = [tree.add_path(path) for path in paths if len(path) <= k]
    return tree, ends


@dataclass
class Lookahead:
    """Hold the window and the pool of one text between its rounds."""

    n_columns: int
    ngram: int
    pool_size: int
    n_vocab: int
    window: list = field(default_factory=list)  # columns
    ends: list = field(default_factory=list)  # the node at the end of each column's path
    pool: dict = field(default_factory=dict)  # first token -> its latest runs

    def next_tree(self, x, k):
        """Return the n-grams of the pool that begin with x[-1], in one tree with the window."""
        self.window = refill(self.window, x, self.n_columns, self.ngram)
        runs = self.pool.get(x[-1], [])
        tree, self.ends = make_tree(runs, column_paths(self.window), k, self.n_vocab)
        return tree

    def move(self, result):
        """Continue every column with the target's best token; move the window past the text."""
        for column, end in zip(self.window, self.ends):
            column.append(int(row_after(result.p_target, end).argmax()))  # (a)
            add_to_pool(self.pool, column, self.pool_size)  # (b)
        # Column i without its first token begins i + 1 positions after the old x[-1], and the
        # new x[-1] is len(ids) positions after it.
        first = len(result.ids) - 1
        # A column whose path was left out of the tree has no new token, and is dropped.
        n_continued = len(self.ends)
        self.window = [column[1:] for column in self.window[first:n_continued]]  # (c)


def guess_ngrams(x, k, rng, lookahead):
    """Return the tree of a Lookahead after x, and the one-hot rows of its n-grams."""
    tree = lookahead.next_tree(x, k)
    # tree.rows() does not apply, because the nodes of the window have no rows.
    return tree, [row for _, row in tree.proposals]


def build(models: Models,
          columns: Annotated[int, Flag(whole, "number of columns of the window; each pass "
              "extends all of them")] = 5,
          ngram: Annotated[int, Flag(whole, "length in tokens of the runs in the pool")] = 4,
          pool: Annotated[int, Flag(whole, "largest number of runs in the pool per first "
              "token")] = 5) -> Step:
    """Return the step of one text; the `guesses` of its Rounds are the tested ones only."""
    if ngram < 2:
        raise ValueError(f"need --ngram >= 2, got {ngram}")
    target = with_tree_sampling(models.target, **models.sampling)
    lookahead = Lookahead(columns, ngram, pool, models.target.n_vocab)
    make_guesses = partial(guess_ngrams, lookahead=lookahead)
    # More than it has: columns - 1 of the trunk and ngram - 2 below them, or ngram - 1 of a run
    most_levels = columns + ngram

    def step(x, n_left, rng):
        result = speculative_step(x, n_left, rng, target, most_levels, make_guesses,
                                  verify_tree)
        lookahead.move(result)
        # The first nodes are the guesses, one proposal each. The nodes of the window follow.
        tree = result.guesses
        n = len(tree.proposals)
        guesses = Tree(tree.tokens[:n], tree.parents[:n], tree.proposals)
        return result._replace(guesses=guesses)

    return step


DECODER = Decoder(
    "lookahead", "Fu et al. (2024)", "https://arxiv.org/abs/2402.02057",
    idea="pools n-grams from Jacobi's iteration, and reuses them as guesses",
    family="no draft model",
    guess=guess_ngrams, test=verify_tree, build=build, needs=needing("tree"))
