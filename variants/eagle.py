"""Li et al. (2024a), "EAGLE: ... Requires Rethinking Feature Uncertainty". Lossless.

Adds to medusa.py: one head that also reads its own guesses. The target's state at a position
does not determine which token was drawn there. The head (eagle_head.py) reads pairs of a state
and the token that came next, predicts the state at that token, and continues from the predicted
state. So the head can guess a chain or a tree of tree.py; the dynamic tree is by Li et al.
(2024b). The pass that tests the guesses gives the true states of the accepted tokens. The head
has EAGLE-3's norms on both inputs. It was trained with EAGLE-1's objective, and then with
EAGLE-3's, Li et al. (2025).
"""

from functools import partial
from typing import Annotated

from speculative import Step, make_step, verify
from variants.registry import Costs, Decoder, Flag, Models, either, needing, whole, wholes
from variants.shared.best_tree import uniform_shape
from variants.shared.branches import with_tree_sampling
from variants.shared.eagle_head import Head, load_head
from variants.tree import SIBLINGS, TOTAL, guess_shape, tree_step, verify_tree


def guess_chain(x, k, rng, draft):
    """Return k guesses, one after another, and the distributions they were sampled from."""
    chain = uniform_shape((1,) * k)  # the head reads trees: a chain has one child at each node
    tree, rows = guess_shape(x, k, rng, draft, chain)
    return tree.tokens, rows


def build(models: Models,
          K: Annotated[int | None, Flag(whole, "guesses in a chain, or levels of a dynamic "
              "tree (default: 4)")] = None,
          widths: Annotated[tuple | str, Flag(
              either(wholes, "chain", "dynamic", "auto"), "chain: K guesses in a row; dynamic: "
              "a new tree in each round; auto: the best tree at the measured costs; or "
              "children per node, level by level")] = "chain",
          siblings: SIBLINGS = None,
          total: TOTAL = None) -> Step:
    """Return the step of a chain, of a tree of these widths, or of each round's best tree."""
    if K is not None and widths not in ("chain", "dynamic"):
        raise ValueError("--K needs --widths chain or --widths dynamic")
    if widths == "chain" and (siblings or total):
        raise ValueError("--siblings and --total need a tree: choose its --widths")
    # The head reads the states that the target's passes leave in `models.target`.
    head = Head(load_head(models), models.target, models.target.states_of)
    models = models._replace(draft=head)
    if widths == "auto":
        assert models.costs is not None  # variants.build checks it, because `needs` has "costs"
        passes = models.costs.passes
        models = models._replace(costs=Costs(head.share() * passes[0], passes))
    if widths == "chain":
        guess = partial(guess_chain, draft=with_tree_sampling(head, **models.sampling))
        step_with_guesses = make_step(models.target_rows, K or 4, guess, models.test)
    else:
        step_with_guesses = tree_step(models, widths, siblings, total, K or 4)

    def step(x, n_left, rng):
        # A single token has no state before it, so the head has no pair, and no guess.
        return step_with_guesses(x, 1 if len(x) == 1 else n_left, rng)

    return step


def needs(settings):
    """Return what a chain or a tree of the head needs."""
    of_guesses = needing("heads") if settings["widths"] == "chain" else needing("heads", "tree")
    return of_guesses(settings)


DECODER = Decoder(
    "eagle", "Li et al. (2024a)", "https://arxiv.org/abs/2401.15077",
    idea="guesses with one layer that reads the target's states and its own guesses",
    family="heads on the target",
    guess=guess_chain, test=verify, build=build, needs=needs, tree=(guess_shape, verify_tree))
