"""Compute the expected tokens per round of every test, on rows of the bundled pair.

    python -m benchmarks rules --json benchmarks/results/rules.json    some minutes
    python -m benchmarks rules --show benchmarks/results/rules.json

    round    of the ratio rule, in a text that continues one of models.OPENINGS. Its guesses and
             rows are recorded as a Place
    widths   numbers of siblings, level by level, of the recorded tree of guesses
    chain    the first sibling drawn on each level: K guesses. So tests of chains and tests of
             trees are given the same guesses
    long     the chain and K more drawn guesses: as many rows as two paths of K guesses
    second   a second path of K guesses, independent of the chain; `multipath` tests both
    more     the difference to the ratio rule in the same rounds

The figures do not depend on a test's random numbers, because exact/expected.py sums over them.
Rounds of one text are not independent, so standard errors count texts. A decoder's own rounds
start where its own test ended the round before, so its tokens per pass can differ slightly.
"""

from typing import NamedTuple

import numpy as np

from exact.expected import chain_bound, mean_tokens
from lib.markdown import markdown_table
from lib.statistics import means
from measure import command
from measure.models import LENGTH, OPENINGS, load_benchmark_pair
from speculative import verify
from variants.block import block_verify
from variants.multipath import guess_paths, verify_best_path
from variants.registry import whole
from variants.shared.best_tree import uniform_shape
from variants.shared.branches import Tree, row_after, with_tree_sampling
from variants.shared.tree_gpt2 import tree_model
from variants.traversal import verify_traversal
from variants.tree import guess_shape

K = 4
RECORDED_WIDTHS = (2, 2, 1, 1)  # a width for each of the K levels
TEMPERATURES = (1.0, 0.7)


# ---- recording

def add_path(tree, node, path):
    """Add a path below a node of a tree, and return its end; equal starts share nodes."""
    for token, row in zip(path.tokens, path.rows()):
        node = tree.add(node, token, row)
    return node


class Place(NamedTuple):
    """The guesses and rows of one recorded round."""

    tree: Tree
    p_target: np.ndarray  # [1 + len(tree), n_vocab]

    def part(self, widths):
        """Return (tree, p_target) of a part of the tree.

        The part has the first widths[0] guesses at the root, below each of them the first
        widths[1] guesses, and so on.
        """
        tree = Tree()
        rows = [self.p_target[0]]  # row 0 is the root's, row 1 + i is node i's
        level = [(-1, -1)]  # each node of a level, and its copy; -1 is the root
        for width in widths:
            level = [(child, tree.add(copy, self.tree.tokens[child], row))
                     for node, copy in level
                     for child, row in self.tree.guesses_at(node)[:width]]
            # Rows are appended in the order in which nodes are added.
            rows += [row_after(self.p_target, child) for child, _ in level]
        return tree, np.array(rows)

    def chain(self):
        """Return (guesses, p_draft, p_target) of the first-drawn path."""
        tree, p_target = self.part((1,) * K)
        return list(tree.tokens), np.array(tree.rows()), p_target


def record(x, draft, target, rng):
    """Return the Place after x."""
    tree, _ = guess_shape(x, K, rng, draft, uniform_shape(RECORDED_WIDTHS))
    # A model reads the branches of x + tree. It returns a row after x, and one after each node.
    return Place(tree, target(x + tree, 1 + len(tree)))


def tests_of_doubled(x, place, draft, target, rng):
    """Return {test: expected tokens} of the round after x with twice as many guesses."""
    chain, _ = place.part((1,) * K)
    later, _ = guess_shape(x + chain.tokens, K, rng, draft, uniform_shape((1,) * K))
    second, _ = guess_paths(x, K, rng, draft, paths=1)
    # K more guesses after the chain, and K guesses next to it.
    long = Tree()
    add_path(long, add_path(long, -1, chain), later)
    paths = Tree()
    for path in (chain, second):
        add_path(paths, -1, path)
    p_long = target(x + long, 1 + len(long))
    p_paths = target(x + paths, 1 + len(paths))
    return {"block, 8 guesses": mean_tokens(block_verify, long.tokens, long.rows(), p_long),
            "multipath, 2 paths of 4": mean_tokens(verify_best_path, paths, None, p_paths)}


def recorded_rounds(draft, target, encoder, n_rounds):
    """Yield (number of the text, {test: expected tokens}) of each round of the ratio rule."""
    text = -1  # the number of the text
    x = []
    end = 0  # the length at which the text ends
    for _ in range(n_rounds):
        if len(x) >= end:
            text += 1
            rng = np.random.default_rng(text)
            x = encoder.encode(OPENINGS[text % len(OPENINGS)])
            end = len(x) + LENGTH
        # More guesses have their own generator, so the text does not depend on them.
        [rng_of_doubled] = rng.spawn(1)
        place = record(x, draft, target, rng)
        doubled = tests_of_doubled(x, place, draft, target, rng_of_doubled)
        yield text, tests(place) | doubled
        # The ratio rule ends the round, and the next round begins after its tokens.
        x = x + verify(*place.chain(), rng)


def tests(place):
    """Return {test: expected tokens of the recorded round}."""
    chain = place.chain()
    tree, p_target = place.part((2, 1, 1, 1))
    return {"ratio": mean_tokens(verify, *chain), "block": mean_tokens(block_verify, *chain),
            "bound of one chain": chain_bound(*chain),
            "siblings 2,1,1,1, traversal": mean_tokens(verify_traversal, tree, None, p_target)}


# ---- figures

def all_figures(args):
    """Return the figures of all temperatures."""
    encoder, *pair = load_benchmark_pair("pair")
    temperatures = {}
    for temperature in TEMPERATURES:
        models = (with_tree_sampling(tree_model(model), temperature=temperature)
                  for model in pair)
        texts, by_test = zip(*recorded_rounds(*models, encoder, args.rounds))
        temperatures[f"{temperature:g}"] = {
            "texts": len(set(texts)), "tests": means(by_test, texts)}
    return {"N": LENGTH, "K": K, "rounds": args.rounds, "temperatures": temperatures}


# ---- the tables

def paragraphs(figures, args):
    """Yield the sentences and tables of a file."""
    for temperature, part in figures["temperatures"].items():
        yield (f"Temperature {temperature}: {figures['rounds']} rounds of {part['texts']} "
               f"texts of {figures['N']} tokens (openings), K = {figures['K']}.")
        # The z in +z.3f writes a negative number that rounds to 0 as +0.000.
        yield markdown_table(
            ["rule", "tokens per round", "standard error", "more than ratio", "standard error"],
            [[name, f"{row['mean']:.3f}", f"{row['error']:.3f}", f"{row['more']:+z.3f}",
              f"{row['more_error']:.3f}"] for name, row in part["tests"].items()])


BENCHMARK = command.Benchmark(__doc__, all_figures, paragraphs, flags={
    "rounds": dict(type=whole, default=2000,
                   help="number of rounds to record at each temperature")})
