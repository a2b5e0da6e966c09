"""Compare tests on the same recorded rounds of the bundled pair: expected tokens per round.

    python -m exact.judge FILE.py --rows     your verify, the ratio test, block and the bound
    python -m benchmarks.rules --record benchmarks/results/rows.npz    writes the file

    chain       the guesses, p_draft and p_target of one round; temperature 1
    guesses     K columns: guess t was drawn from the draft's row t
    p_draft     [K, V]
    p_target    [K + 1, V]

A column of row t is a token: guess t, or one of the most probable tokens of the draft's or the
target's row t. The last four columns are sums over all other tokens, one for each range of
p_target / p_draft: up to 1, up to 2, up to 4, and above. So a guess keeps its probabilities, and
the sum of min(p_draft, p_target) is the same as with whole rows. Other sums can differ a little,
such as block's sum of max(share * p_target - p_draft, 0). The columns of different rows are
different tokens.

The file stores float16; `read` divides each row by its sum in float64.

No lossless test of one chain of drawn guesses exceeds the bound. Block is the best test if a
round depends on the text alone, as in every decoder here (`best_chain` in exact/optimum.py). A
test can write more tokens than block only if its later rounds depend on its rejected guesses.
"""

import contextlib
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from exact.expected import block_tokens, chain_bound, ratio_tokens
from exact.law import expectation, paths
from lib.markdown import markdown_table
from lib.statistics import means
from speculative import Test
from variants.shared.branches import best_ids

# written by benchmarks.rules, like all files of that folder; read here and nowhere else
PATH = Path(__file__).parents[1] / "benchmarks/results/rows.npz"
TOKENS = 64  # with a column of their own
RATIOS = 1, 2, 4  # p_target / p_draft at which the next column of other tokens begins
TESTS = {"ratio": ratio_tokens, "block": block_tokens, "bound of one chain": chain_bound}
MOST = 2000  # outcomes of the first round: more are not enumerated
RUNS = 200  # of each round, if it is not enumerated

Chain = tuple[list[int], np.ndarray, np.ndarray]


# ---- the file

def in_columns(row: np.ndarray, columns: list[int], group: np.ndarray) -> np.ndarray:
    """Return the row's columns, and the sums of its other tokens by their group."""
    others = np.delete(row, columns)
    sums = np.bincount(group, weights=others, minlength=len(RATIOS) + 1)
    return np.concatenate([row[columns], sums])


def columns_of(guess: int, draft: np.ndarray, target: np.ndarray) -> tuple[list, np.ndarray]:
    """Return the tokens with a column of their own, and the group of each other token."""
    largest = np.maximum(draft, target)
    largest[guess] = 1  # a guess has its own column
    columns = sorted(best_ids(largest, TOKENS))
    # how many of RATIOS the token's ratio of p_target to p_draft exceeds
    group = sum(target > ratio * draft for ratio in RATIOS)
    return columns, np.delete(group, columns)


def reduced(guesses: list[int], p_draft: np.ndarray, p_target: np.ndarray) -> Chain:
    """Return a chain of whole rows, reduced to the columns of the file."""
    guesses_out = []
    draft_out = []
    target_out = []
    for guess, draft, target in zip(guesses, p_draft, p_target):
        columns, group = columns_of(guess, draft, target)
        guesses_out.append(columns.index(guess))
        draft_out.append(in_columns(draft, columns, group))
        target_out.append(in_columns(target, columns, group))
    # the bonus row has no guess and no row of the draft: the stored file has token 0 and the
    # target's row in their places
    bonus = p_target[-1]
    columns, group = columns_of(0, bonus, bonus)
    target_out.append(in_columns(bonus, columns, group))
    return guesses_out, np.array(draft_out), np.array(target_out)


def write(path: Path, chains: list) -> None:
    """Write the chains with reduced rows, and the tokens of TESTS on their whole rows."""
    reduced_chains = [reduced(*chain) for chain in chains]
    guesses, p_draft, p_target = zip(*reduced_chains)
    on_whole_rows = [[tokens(*chain) for tokens in TESTS.values()] for chain in chains]
    np.savez_compressed(path, guesses=np.array(guesses, np.uint8),
                        p_draft=np.array(p_draft, np.float16),
                        p_target=np.array(p_target, np.float16), on_whole_rows=on_whole_rows)


def read(path: Path = PATH) -> tuple[list[Chain], np.ndarray]:
    """Return the chains of a file, and the tokens of TESTS on their whole rows, [n, 3]."""
    with np.load(path) as stored:
        p_draft = stored["p_draft"].astype(np.float64)  # [n, K, V]
        p_target = stored["p_target"].astype(np.float64)  # [n, K + 1, V]
        p_draft /= p_draft.sum(axis=-1, keepdims=True)
        p_target /= p_target.sum(axis=-1, keepdims=True)
        return list(zip(stored["guesses"].tolist(), p_draft, p_target)), stored["on_whole_rows"]


# ---- figures

def tokens_of(verify: Test, chains: list[Chain]) -> tuple[list, str]:
    """Return the tokens of a verifier in each round, and in words how they were found."""
    rounds = [partial(verify, *chain) for chain in chains]  # functions of rng
    # closed, because an enumeration that is not at its end forbids the generator below
    with contextlib.closing(paths(rounds[0])) as outcomes:
        n_outcomes = len(list(islice(outcomes, MOST + 1)))  # one more shows that there are more
    if n_outcomes <= MOST:
        expected = [expectation(one_round, len) for one_round in rounds]
        return expected, "every outcome is enumerated"
    rng = np.random.default_rng(0)
    runs = [[len(one_round(rng)) for _ in range(RUNS)] for one_round in rounds]
    return [np.mean(lengths) for lengths in runs], f"the mean of {RUNS} runs of each round"


def means_table(figures: dict[str, dict[str, float]]) -> str:
    """Return the means of tests as Markdown; the first test of `figures` is the ratio test."""
    return markdown_table(
        ["test", "tokens per round", "standard error", "more than ratio", "standard error"],
        [[name, f"{row['mean']:.3f}", f"{row['error']:.3f}", f"{row['more']:+z.3f}",
          f"{row['more_error']:.3f}"] for name, row in figures.items()])


def paragraphs(name: str = "", verify: Test | None = None, path: Path = PATH) -> Iterator[str]:
    """Yield the figures of TESTS, and of a verifier with this name, on the recorded rounds."""
    chains, on_whole_rows = read(path)
    rows = [{test: tokens(*chain) for test, tokens in TESTS.items()} for chain in chains]
    yield (f"{len(chains)} recorded rounds of the bundled pair, temperature 1, "
           f"K = {len(chains[0][0])}:")
    if verify:
        tokens_of_verify, how = tokens_of(verify, chains)
        rows = [row | {name: tokens} for row, tokens in zip(rows, tokens_of_verify)]
    texts = range(len(rows))  # every round is counted as an independent text
    yield means_table(means(rows, texts))
    whole_means = zip(TESTS, on_whole_rows.mean(axis=0))
    whole = ", ".join(f"{test} {mean:.3f}" for test, mean in whole_means)
    yield f"On rows with a column for every token of the vocabulary: {whole}."
    if verify:
        yield f"{name}: {how}."
