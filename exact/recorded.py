"""Compare tests on the same recorded rounds of the bundled pair: expected tokens per round.

    python -m exact.judge FILE.py --rows     your verify, the ratio rule, block and the bound
    python -m benchmarks rules --record benchmarks/results/rows.npz    writes the file

    chain       the guesses, p_draft and p_target of one round; temperature 1
    guesses     K columns: guess t was drawn from the draft's row t
    p_draft     [K, V]
    p_target    [K + 1, V]

The file does not store whole rows. Row t of both models is reduced to V = 68 columns, which are
chosen for this position alone:

 1. The first 64 columns are single tokens: guess t, and the tokens that are most probable in
    the draft's or the target's row t.
 2. The last four columns are sums over the other tokens. The first of them sums the tokens
    whose p_target / p_draft is up to 1; the others sum from 1 to 2, from 2 to 4, and above 4.

So a guess keeps its probabilities. The sum of min(p_draft, p_target) is the same as with whole
rows: in the range up to 1 the minimum of every token is p_target, and in the other ranges it is
p_draft. Other sums can differ a little, such as block's sum of max(share * p_target - p_draft,
0).

The file stores float16; `read_chains` divides each row by its sum in float64.

No exact rule for one chain of drawn guesses exceeds the bound. Block is the best rule if a
round depends on the text alone, as in every decoder here (tests/test_optimum.py). A
test can write more tokens than block only if its later rounds depend on its rejected guesses.
"""

from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from exact.expected import ChainTokens, chain_bound, mean_tokens
from exact.law import paths
from lib.markdown import markdown_table
from lib.statistics import means
from speculative import Test, verify
from variants.block import block_verify
from variants.shared.branches import best_ids

# the file, which benchmarks/rules.py writes
PATH = Path(__file__).parents[1] / "benchmarks/results/rows.npz"
TOKENS = 64  # tokens with a column of their own
RATIOS = 1, 2, 4  # the limits between the four ranges of p_target / p_draft
BOUND = "bound of one chain"
TESTS: dict[str, ChainTokens] = {
    "ratio": partial(mean_tokens, verify), "block": partial(mean_tokens, block_verify),
    BOUND: chain_bound}
MOST = 2000  # outcomes of a round that are enumerated; a test that draws when needed has fewer

Chain = tuple[list[int], np.ndarray, np.ndarray]  # (guesses, p_draft, p_target)


# ---- the file

def in_columns(row: np.ndarray, columns: list[int], ranges: np.ndarray) -> np.ndarray:
    """Return the row's columns, and the sums of its other tokens by their range."""
    others = np.delete(row, columns)
    sums = np.bincount(ranges, weights=others, minlength=len(RATIOS) + 1)
    return np.concatenate([row[columns], sums])


def columns_of(guess: int, draft: np.ndarray, target: np.ndarray) -> tuple[list, np.ndarray]:
    """Return the tokens with a column of their own, and the number of each other token's range.

    `draft` and `target` are the rows of one position.
    """
    largest = np.maximum(draft, target)
    largest[guess] = 1  # so the guess is among the best ids
    columns = sorted(best_ids(largest, TOKENS))
    # range i has the tokens whose p_target / p_draft exceeds exactly i of the limits
    range_of = sum(target > limit * draft for limit in RATIOS)
    return columns, np.delete(range_of, columns)


def reduced(guesses: list[int], p_draft: np.ndarray, p_target: np.ndarray) -> Chain:
    """Return a chain of whole rows, reduced to the columns of the file."""
    guesses_out = []
    draft_out = []
    target_out = []
    for guess, draft, target in zip(guesses, p_draft, p_target):
        columns, ranges = columns_of(guess, draft, target)
        # in the file a token is the number of its column
        guesses_out.append(columns.index(guess))
        draft_out.append(in_columns(draft, columns, ranges))
        target_out.append(in_columns(target, columns, ranges))
    # The bonus row has no guess and no row of the draft. The stored file was made with token 0
    # as its guess and with the target's row as the draft's.
    bonus = p_target[-1]
    columns, ranges = columns_of(0, bonus, bonus)
    target_out.append(in_columns(bonus, columns, ranges))
    return guesses_out, np.array(draft_out), np.array(target_out)


def write_chains(path: Path, chains: list) -> None:
    """Write the chains with reduced rows, and the tokens of TESTS on their whole rows."""
    reduced_chains = [reduced(*chain) for chain in chains]
    guesses, p_draft, p_target = zip(*reduced_chains)
    on_whole_rows = [[tokens(*chain) for tokens in TESTS.values()] for chain in chains]
    np.savez_compressed(path, guesses=np.array(guesses, np.uint8),
                        p_draft=np.array(p_draft, np.float16),
                        p_target=np.array(p_target, np.float16), on_whole_rows=on_whole_rows)


def read_chains(path: Path = PATH) -> tuple[list[Chain], np.ndarray]:
    """Return the chains of a file, and the tokens of TESTS on their whole rows, [n, 3]."""
    with np.load(path) as stored:
        guesses = stored["guesses"].tolist()  # [n, K]
        p_draft = stored["p_draft"].astype(np.float64)  # [n, K, V]
        p_target = stored["p_target"].astype(np.float64)  # [n, K + 1, V]
        on_whole_rows = stored["on_whole_rows"]
    # float16 has rounded the rows, so each is divided by its sum
    p_draft /= p_draft.sum(axis=-1, keepdims=True)
    p_target /= p_target.sum(axis=-1, keepdims=True)
    return list(zip(guesses, p_draft, p_target)), on_whole_rows


# ---- figures

def tokens_of(verify: Test, chains: list[Chain]) -> list:
    """Return the expected tokens of a verifier in each round; every outcome is enumerated."""
    expected = []
    for chain in chains:
        def on_copies(rng, chain=chain):
            return verify(*deepcopy(chain), rng)  # because a verifier may write into its rows

        outcomes = list(islice(paths(on_copies), MOST + 1))
        if len(outcomes) > MOST:
            raise ValueError(f"need a verify with at most {MOST} outcomes in a recorded round: "
                             "draw a token only when the round needs it")
        expected.append(sum(len(ids) * p for ids, p, _ in outcomes))
    return expected


def means_table(figures: dict[str, dict[str, float]]) -> str:
    """Return the means of rules as Markdown; the first rule of `figures` is the ratio rule."""
    header = ["rule", "tokens per round", "standard error", "more than ratio", "standard error"]
    lines = []
    for name, row in figures.items():
        # the z in +z.3f writes a negative number that rounds to 0 as +0.000
        lines.append([name, f"{row['mean']:.3f}", f"{row['error']:.3f}", f"{row['more']:+z.3f}",
                      f"{row['more_error']:.3f}"])
    return markdown_table(header, lines)


def figures_of(name: str = "", verify: Test | None = None,
               path: Path = PATH) -> list[dict[str, float]]:
    """Return each round's tokens by TESTS, and by a verifier with this name."""
    chains, _ = read_chains(path)
    figures = [{test: tokens(*chain) for test, tokens in TESTS.items()} for chain in chains]
    if verify:
        for of_round, n_tokens in zip(figures, tokens_of(verify, chains)):
            of_round[name] = n_tokens
    return figures


def is_above_bound(figures: list[dict[str, float]], name: str) -> bool:
    """Return whether a verifier's mean shows that it is not exact.

    The rounds alone put an exact verifier 6 standard errors above the bound with a
    probability near 1e-9, and the reduced rows change a mean by less than 0.001.
    """
    pairs = [{test: of_round[test] for test in (BOUND, name)} for of_round in figures]
    difference = means(pairs, range(len(pairs)))[name]  # from the first, the bound
    return difference["more"] > max(6 * difference["more_error"], 0.001)


def paragraphs(figures: list[dict[str, float]], path: Path = PATH) -> Iterator[str]:
    """Yield the figures of the recorded rounds."""
    chains, on_whole_rows = read_chains(path)
    guesses, _, _ = chains[0]
    yield (f"{len(chains)} recorded rounds of the bundled pair, temperature 1, "
           f"K = {len(guesses)}:")
    texts = range(len(figures))  # every round is counted as an independent text
    yield means_table(means(figures, texts))
    whole_means = zip(TESTS, on_whole_rows.mean(axis=0))
    whole = ", ".join(f"{test} {mean:.3f}" for test, mean in whole_means)
    yield f"On distributions over the whole vocabulary: {whole}."
    for name in figures[0].keys() - TESTS.keys():
        yield f"{name}: every outcome is enumerated."
