"""One paper a file, each a step for the loop in speculative.py; here, all of them and their flags.

Reading order: auto, lookup, assisted, block, lenient, big_little, tree, kseq, staged, medusa,
blockwise. docs/variants.md has a paragraph on each.

    Models      what a decoder is built from: the bare models and the sampling knobs
    FLAGS       every decoder flag: type, help, choices
    DECODERS    name -> its builder, its flags with their defaults, what it needs, when it is exact
    settings    the flags of one decoder: those given, the defaults of the others
    build       the step of one text
"""

from functools import partial
from pathlib import Path
from typing import NamedTuple

from sampling import warped
from speculative import autoregressive_step, speculative_step
from variants.assisted import SCHEDULES, assisted
from variants.big_little import big_little_step
from variants.block import block_step
from variants.blockwise import blockwise
from variants.kseq import kseq_step
from variants.lenient import lenient_step
from variants.lookup import lookup_step, one_hot_rows
from variants.medusa import cartesian, load_heads, medusa, verify_typical, with_states
from variants.staged import ngram, staged_step, staged_tree_step
from variants.tree import SIBLINGS, tree_step, tree_warped, verify_tree


class Models(NamedTuple):
    """What a decoder is built from. The models give logits; the decoder applies the knobs."""

    draft: object  # a GPT2, or what has its __call__ and tree
    target: object  # a GPT2, or what has its __call__, tree, tree_hidden, params, n_vocab
    knobs: dict  # sampling.warp's
    heads: object = None  # where the target's medusa.npz is


def laws(models):
    """Draft and target as callables that give probabilities."""
    return dict(draft=warped(models.draft, **models.knobs),
                target=warped(models.target, **models.knobs))


def hot(models):
    """The models' knobs at temperature 1, for decoders whose test needs more than a one-hot row."""
    return {**models.knobs, "temperature": 1.0}


def is_greedy(models):
    """At temperature 0?"""
    return models.knobs["temperature"] == 0


def need_greedy(models, name):
    """Raise the ValueError of a decoder that draws nothing."""
    if not is_greedy(models):
        raise ValueError(f"need --temperature 0 for the decoder {name}, a greedy method, "
                         f"got {models.knobs['temperature']}")


def heads_of(models):
    """The target's heads, or a ValueError that says where they were looked for."""
    if models.heads is None or not Path(models.heads).exists():
        raise ValueError(f"need heads trained for this target, got no file {models.heads}")
    return load_heads(models.heads, models.target.params)


# ---- one builder a decoder

def build_autoregressive(models):
    """Plain decoding, for comparison."""
    return partial(autoregressive_step, model=laws(models)["target"])


def build_speculative(models, K):
    """The papers' own."""
    return partial(speculative_step, **laws(models), K=K)


def build_lookup(models, K, max_ngram):
    """No draft model at all."""
    return partial(lookup_step, target=laws(models)["target"], K=K, max_ngram=max_ngram)


def build_assisted(models, K, schedule, confidence):
    """Confidence is read at temperature 1 if the guesses are greedy."""
    greedy = is_greedy(models)
    draft = warped(models.draft, **(hot(models) if greedy else models.knobs))
    return assisted(draft, laws(models)["target"], K, schedule, confidence, greedy)


def build_block(models, K):
    """Another test."""
    return partial(block_step, **laws(models), K=K)


def build_lenient(models, K, lenience):
    """At temperature 0 the test compares the target's probabilities at temperature 1."""
    greedy = is_greedy(models)
    target = warped(models.target, **(hot(models) if greedy else models.knobs))
    return partial(lenient_step, draft=laws(models)["draft"], target=target, K=K, lenience=lenience,
                   greedy=greedy)


def build_bild(models, run, fallback, rollback):
    """Both thresholds look at laws at temperature 1."""
    need_greedy(models, "bild")
    small, large = (warped(model, **hot(models)) for model in (models.draft, models.target))
    return partial(big_little_step, small=small, large=large, run=run, fallback=fallback,
                   rollback=rollback)


def build_tree(models, widths, siblings):
    """At temperature 0 a draft's row has one id only, so it gives its best ids at temperature 1."""
    if siblings == "auto":
        siblings = "top" if is_greedy(models) else "distinct"
    if is_greedy(models) and siblings != "top":
        raise ValueError(f"need --siblings top at --temperature 0, got {siblings}")
    draft = tree_warped(models.draft, **(hot(models) if is_greedy(models) else models.knobs))
    return partial(tree_step, drafts=[draft], target=tree_warped(models.target, **models.knobs),
                   widths=widths, siblings=siblings)


def build_kseq(models, K, chains):
    """Chains are drawn one by one and scored as a tree."""
    return partial(kseq_step, draft=laws(models)["draft"], K=K, chains=chains,
                   target=tree_warped(models.target, **models.knobs))


def build_staged(models, K, inner_K, order, width):
    """An n-gram model under the draft under the target."""
    if is_greedy(models) and width > 1:
        raise ValueError(f"need --width 1 at --temperature 0, where one id has all the mass, "
                         f"got {width}")
    small = ngram(models.target.n_vocab, order)
    if is_greedy(models):
        counts, n_vocab = small, models.target.n_vocab
        small = lambda ids, n_last=1: one_hot_rows(counts(ids, n_last).argmax(axis=-1), n_vocab)
    inner = partial(speculative_step, draft=small, target=laws(models)["draft"], K=inner_K)
    if width == 1:
        return partial(staged_step, inner=inner, target=laws(models)["target"], K=K)
    return partial(staged_tree_step, inner=inner, K=K, width=width,
                   target=tree_warped(models.target, **models.knobs))


def build_medusa(models, widths, sparse, acceptance, epsilon, delta):
    """The paper's heads with either test, over either kind of tree."""
    verify = {"exact": verify_tree,
              "typical": partial(verify_typical, epsilon=epsilon, delta=delta)}[acceptance]
    return medusa(with_states(models.target, **models.knobs), heads_of(models),
                  sparse or cartesian(widths), verify)


def build_blockwise(models, block, selection, minimum):
    """The selection looks at the target's order, so at its law at temperature 1."""
    need_greedy(models, "blockwise")
    return blockwise(with_states(models.target, **hot(models)), heads_of(models), block, selection,
                     minimum)


# ---- the registry

class Flag(NamedTuple):
    """One command-line flag: what argparse needs."""

    type: object
    help: str
    choices: tuple = None


class Decoder(NamedTuple):
    """One method. `flags` are the names it uses, and their defaults."""

    build: object  # callable (models, **flags) -> step
    source: str
    flags: dict
    exact: object = lambda settings: True  # callable (settings) -> bool
    needs: tuple = ("draft",)
    greedy: bool = False  # temperature 0 only
    tree: object = lambda settings: False  # callable (settings) -> bool: guesses are no chain


def whole_or_auto(text):
    """A number of guesses, or "auto": chosen round by round from what was measured (auto.py)."""
    return text if text == "auto" else int(text)


def numbers(text):
    """"3,2,1" as a tuple of ints >= 1."""
    widths = tuple(int(part) for part in text.split(","))
    if min(widths) < 1:
        raise ValueError(f"need numbers >= 1, got {text}")
    return widths


def choices(text):
    """"0 1 0.0" as the sparse tree (0,), (1,), (0, 0): medusa.py."""
    tuples = [tuple(int(part) for part in word.split(".")) for word in text.split()]
    for choice in tuples:
        if min(choice) < 0 or choice[:-1] and choice[:-1] not in tuples:
            raise ValueError(f"need the start of each path to be a path, got {choice} in {text}")
    return tuples


FLAGS = {
    "K": Flag(whole_or_auto, "guesses a round; auto (speculative only) chooses by measuring"),
    "max_ngram": Flag(int, "longest run of ids looked up"),
    "schedule": Flag(str, "how K follows the past", SCHEDULES),
    "confidence": Flag(float, "stop guessing after a guess with less than this"),
    "lenience": Flag(float, "in (0, 1]; 1 is lossless"),
    "run": Flag(int, "ids the small model writes in a row"),
    "fallback": Flag(float, "the small model hands over below this"),
    "rollback": Flag(float, "the large model takes back beyond this, in nats"),
    "widths": Flag(numbers, "children for each node, level by level: 3,2,1"),
    "siblings": Flag(str, "how children of one node are drawn; auto: top at temperature 0, "
                          "else distinct", ("auto", *SIBLINGS)),
    "chains": Flag(int, "independent drafts"),
    "inner_K": Flag(int, "guesses a round of the inner stage"),
    "order": Flag(int, "of the n-gram model: 3 looks at two ids"),
    "width": Flag(int, "guesses for each place; above 1 the chain becomes a tree"),
    "sparse": Flag(choices, "a sparse tree in place of widths, each node by its path's ranks: "
                            "'0 1 0.0 0.1 0.0.0'"),
    "acceptance": Flag(str, "the test", ("exact", "typical")),
    "epsilon": Flag(float, "of the typical test"),
    "delta": Flag(float, "of the typical test"),
    "block": Flag(int, "ids a round at most"),
    "selection": Flag(int, "keep a guess among the target's best so many; 1 is exact"),
    "minimum": Flag(int, "ids a round at least; 1 is exact"),
}

DECODERS = {
    "speculative": Decoder(build_speculative, "Chen et al. (2023); Leviathan et al. (2023)",
                           {"K": 4}),
    "assisted": Decoder(build_assisted, "Gante (2023)",
                        {"K": 20, "schedule": "constant", "confidence": 0.4}),
    "lookup": Decoder(build_lookup, "Saxena (2023)", {"K": 10, "max_ngram": 3}, needs=()),
    "block": Decoder(build_block, "Sun et al. (2024)", {"K": 4}),
    "lenient": Decoder(build_lenient, "Leviathan et al. (2023) App. A.5", {"K": 4, "lenience": 0.3},
                       exact=lambda settings: settings["lenience"] == 1),
    "bild": Decoder(build_bild, "Kim et al. (2023)", {"run": 10, "fallback": 0.6, "rollback": 5.0},
                    exact=lambda settings: settings["fallback"] > 1, greedy=True),
    "tree": Decoder(build_tree, "Miao et al. (2023)", {"widths": (2, 2, 1), "siblings": "auto"},
                    tree=lambda settings: True),
    "kseq": Decoder(build_kseq, "Sun et al. (2023)", {"K": 4, "chains": 3},
                    tree=lambda settings: True),
    "staged": Decoder(build_staged, "Spector and Re (2023)",
                      {"K": 4, "inner_K": 2, "order": 3, "width": 1},
                      tree=lambda settings: settings["width"] > 1),
    "medusa": Decoder(build_medusa, "Cai et al. (2024)",
                      {"widths": (3, 2, 1), "sparse": [], "acceptance": "exact",
                       "epsilon": 0.09, "delta": 0.3},
                      exact=lambda settings: settings["acceptance"] == "exact", needs=("heads",),
                      tree=lambda settings: True),
    "blockwise": Decoder(build_blockwise, "Stern et al. (2018)",
                         {"block": 4, "selection": 1, "minimum": 1},
                         exact=lambda settings: settings["selection"] == settings["minimum"] == 1,
                         needs=("heads",), greedy=True),
}


def settings(name, given):
    """All flags of a decoder. `given` holds those of the command line, None for one not given.

    Raises
    ------
    ValueError
        If a flag is given that this decoder does not use, or a whole number is below 1.
    """
    flags = DECODERS[name].flags
    given = {flag: value for flag, value in given.items() if value is not None}
    for flag, value in given.items():
        if flag not in flags:
            users = ", ".join(other for other in DECODERS if flag in DECODERS[other].flags)
            raise ValueError(f"need no --{flag} with the decoder {name} (it belongs to {users}), "
                             f"got {value}")
        if (flag, value) == ("K", "auto") and name != "speculative":
            raise ValueError(f"need a number for --K with the decoder {name}, got auto")
        if isinstance(value, int) and value < 1:
            raise ValueError(f"need --{flag} >= 1, got {value}")
    return {**flags, **given}


def build(name, models, given=()):
    """The step of one text: a decoder with the flags given, and the defaults of the others."""
    return DECODERS[name].build(models, **settings(name, dict(given)))
