"""Fu et al. (2024), "Break the Sequential Dependency ... Using Lookahead Decoding". Lossless.

Adds to jacobi.py: a pool of n-grams. Jacobi's iteration often writes the right tokens at the
wrong position. So its runs of tokens are kept in a pool, and guessed when the text reaches their
first token.

    ngram      N, the length of a run
    column     N - 1 tokens at levels 0 .. N - 2, one guess from each of the last N - 1 passes
    window     W columns. Level 0 of column 0 is x[-1]; level l of column i is i + l tokens later
    trunk      the tokens of level 0 of all columns; each column hangs from the trunk
    pool       token -> the last G n-grams that began with it, the latest last

One pass over one token tree both continues the columns and tests guesses (the paper's lookahead
branch and verification branch):

     0       1     2    columns
    x[-1] -- t1 -- t2 .. trunk        x[-1] -- b -- c -- d     n-grams of the pool
     |       |     |                      \
     a1      b1    c1    level 1           b' - c' - d'        guesses with one-hot rows
     |       |     |
     a2      b2    c2    level 2

Here N = 4. The pass gives a3, b3 and c3, and three n-grams join the pool: t1 b1 b2 b3 is one.

Subtle: the nodes of the window are not proposals, so they get rows but no test. The rows continue
the columns. The tokens of these nodes change no distribution, so they may be any tokens; they
start as copies of x.
"""

from functools import partial
from itertools import cycle, islice
from typing import Annotated

from speculative import Step, speculative_step
from variants.registry import Decoder, Flag, Models, whole
from variants.shared.branches import Tree, row_after, tree_of_paths, with_tree_sampling
from variants.tree import verify_tree


def refill(window, x, n_columns, ngram):
    """Return the window with new columns, copied from x, and with x[-1] as its root."""
    # Column i copies ngram - 1 tokens of x from index i on. A short x is repeated.
    copied = list(islice(cycle(x), n_columns + ngram))
    new = [copied[i : i + ngram - 1] for i in range(len(window), n_columns)]
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
    # Column i begins with trunk[i - 1], which trunk[:i] includes.
    return [trunk[:i] + column[1:] for i, column in enumerate(window)]


def add_to_pool(pool, tokens, size):
    """Put an n-gram into the pool once, as the latest; drop the oldest n-gram beyond `size`."""
    first, *run = tokens  # the pool has the run under the first token
    others = [other for other in pool.get(first, []) if other != run]
    pool[first] = [*others, run][-size:]


def make_tree(ngrams, paths, k, n_vocab):
    """Return a tree of at most k levels, and the last node of each path.

    The n-grams are proposals, the latest first; the paths are not. Paths of more than k levels
    are left out: the last paths, because each path is longer than the path before it.
    """
    tree = tree_of_paths([ngram[:k] for ngram in reversed(ngrams)], n_vocab)
    ends = [tree.add_path(path) for path in paths if len(path) <= k]
    return tree, ends


class Lookahead:
    """Hold the window and the pool of one text between its rounds.

    The window moves as far as the text and is filled up at once. (The authors' code by default
    moves it by one position, and fills it level by level in the first rounds.)
    """

    def __init__(self, n_columns, ngram, pool_size, n_vocab):
        self.n_columns = n_columns
        self.ngram = ngram
        self.pool_size = pool_size
        self.n_vocab = n_vocab
        self.window: list[list] = []  # columns
        self.ends: list[int] = []  # the node at the end of each column's path, in this round
        self.pool: dict[int, list] = {}  # first token -> its latest runs, as in `add_to_pool`

    def next_tree(self, x, k):
        """Return the n-grams of the pool that begin with x[-1], in one tree with the window."""
        self.window = refill(self.window, x, self.n_columns, self.ngram)
        tree, self.ends = make_tree(self.pool.get(x[-1], []), column_paths(self.window), k,
                                    self.n_vocab)
        return tree

    def move(self, result):
        """Continue every column with the target's best token; move the window past the text."""
        for column, end in zip(self.window, self.ends):
            column.append(int(row_after(result.p_target, end).argmax()))
            add_to_pool(self.pool, column, self.pool_size)
        # Columns with an end have N tokens now. Without its first token, column i begins i + 1
        # tokens after the old x[-1]. The new x[-1] is len(ids) tokens after it, so the new column
        # 0 is column len(ids) - 1.
        first = len(result.ids) - 1
        n_continued = len(self.ends)  # the columns after these have no end, and are dropped
        self.window = [column[1:] for column in self.window[first:n_continued]]


def guess_ngrams(x, k, rng, lookahead):
    """Return the tree of a Lookahead after x, and the one-hot rows of its n-grams."""
    tree = lookahead.next_tree(x, k)
    # Only the n-grams are guesses with rows: tree.rows() would ask for the window's too.
    return tree, [row for _, row in tree.proposals]


def build(models: Models,
          columns: Annotated[int, Flag(whole, "columns of the window; each pass continues "
              "all of them")] = 5,
          ngram: Annotated[int, Flag(whole, "length of the runs in the pool, in tokens")] = 4,
          pool: Annotated[int, Flag(whole, "at most this many runs in the pool for each "
              "first token")] = 5) -> Step:
    """Return the step of one text; the `guesses` of its Rounds are the tested ones only."""
    if ngram < 2:
        raise ValueError(f"need --ngram >= 2, got {ngram}")
    target = with_tree_sampling(models.target, **models.sampling)
    lookahead = Lookahead(columns, ngram, pool, models.target.n_vocab)
    make_guesses = partial(guess_ngrams, lookahead=lookahead)
    most_levels = columns + ngram  # more than the longest path has

    def step(x, n_left, rng):
        result = speculative_step(x, n_left, rng, target, most_levels, make_guesses,
                                  verify_tree)
        lookahead.move(result)
        tree = result.guesses
        n = len(tree.proposals)  # the guesses are the first nodes; the window's nodes follow
        return result._replace(guesses=Tree(tree.tokens[:n], tree.parents[:n], tree.proposals))

    return step


DECODER = Decoder(
    "lookahead", "Fu et al. (2024)", "https://arxiv.org/abs/2402.02057",
    idea="pools n-grams from Jacobi's iteration, and reuses them as guesses",
    family="no draft model",
    guess=guess_ngrams, test=verify_tree, build=build, needs=("tree",))
