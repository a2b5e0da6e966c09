"""Measure which tests of engines refuse the wrong rules of exact/rules/batched.py.

    python -m benchmarks power --json benchmarks/results/power.json    10 to 35 minutes
    python -m benchmarks power --show benchmarks/results/power.json

A protocol is an engine's public test, restated for verifiers that are functions over arrays. It
asserts what the test asserts, with the test's sizes and bounds, and draws what the test draws,
except for the differences that it states:
`protocol(verify, rng)` returns whether the verifier passes. A figure is the share of runs that
pass; each run has its own random numbers. The oracle's verdict is not simulated.
"""

from functools import partial
from typing import Callable, NamedTuple

import numpy as np

from exact.oracle import check
from exact.rules.batched import EXACT, WRONG
from exact.rules.register import BY_ID
from lib.markdown import markdown_table
from measure import command
from sampling import softmax

NUMBERS = 1 << 21  # the most probabilities in one array


def rounds(verify, p_draft, p_target, n, rng):  # [K, V], [K + 1, V] -> [n, K + 1]
    """Return the tokens of n rounds with these rows and drawn guesses, many at a time."""
    K, V = p_draft.shape
    most = NUMBERS // (K * V)  # rounds per call of the verifier
    tokens = []
    for start in range(0, n, most):
        B = min(most, n - start)  # the last call may have fewer rounds
        guesses = np.stack([rng.choice(V, B, p=row) for row in p_draft], axis=1)
        draft_rows = np.broadcast_to(p_draft, (B, K, V))
        target_rows = np.broadcast_to(p_target, (B, K + 1, V))
        tokens.append(verify(guesses, draft_rows, target_rows, rng.random((B, K + 1))))
    return np.concatenate(tokens)


def shares_of_tokens(tokens, V):
    """Return the share of each token in `tokens`; -1 stands for no token, and is left out."""
    counts = np.bincount(tokens[tokens >= 0], minlength=V)
    return counts / counts.sum()


# ---- protocols

def vllm_v1(verify, rng, V=10, K=2):
    """Return whether the distance to the target falls 20 times as much as to random rows."""
    draft, target, *others = softmax(rng.random((102, V)))  # 100 other rows
    # Distances between the frequencies of tokens and a row, for more and more rounds.
    to_target = []
    to_others = []
    for n in (10, 100, 1000, 10_000, 100_000):
        tokens = rounds(verify, np.array([draft] * K), np.array([target] * (K + 1)), n, rng)
        # The last column is the bonus token, which vLLM's test replaces by a mock.
        came = shares_of_tokens(tokens[:, :-1], V)
        to_target.append(np.linalg.norm(came - target))
        # vLLM's test takes one norm of the array [100, V] of all differences.
        to_others.append(np.linalg.norm(came - others) / len(others))
    # The ratio of the first distance to the last one. Distances to other rows hardly fall.
    fall_to_target = to_target[0] / to_target[-1]
    return fall_to_target > 20 * to_others[0] / to_others[-1]


def fits(tokens, target, fewest=5):
    """Return whether chi-squared is below its mean df plus 10 standard deviations sqrt(2 df).

    Tokens that are expected fewer than `fewest` times are rare, and share one bin.
    """
    expected = target * len(tokens)
    is_rare = expected < fewest
    came = np.bincount(tokens, minlength=len(target)).astype(float)
    rare_came = came[is_rare].sum()
    rare_expected = expected[is_rare].sum()
    came = came[~is_rare]
    expected = expected[~is_rare]
    # If even all rare tokens together are rare, they are left out.
    if rare_expected >= fewest:
        came = np.append(came, rare_came)
        expected = np.append(expected, rare_expected)
    df = len(expected) - 1  # 0 with a single bin, which all tokens fit
    chi_squared = ((came - expected) ** 2 / expected).sum()
    return df < 1 or chi_squared < df + 10 * np.sqrt(2 * df)


def vllm_marginals(verify, rng, V, n, is_opposite, K=3):
    """Return whether each position's tokens fit the target's row, the same at all positions.

    vLLM's test has one guess or three, and its wide case runs at temperature 0.6 too; here
    there are three guesses, at temperature 1. Its narrow case draws the guesses with its own
    Gumbel numbers; here they are drawn as for every test.
    """
    logits = rng.standard_normal(V)
    target = softmax(logits)
    draft = softmax(-logits if is_opposite else rng.standard_normal(V))
    tokens = rounds(verify, np.array([draft] * K), np.array([target] * (K + 1)), n, rng)
    return all(fits(column[column >= 0], target) for column in tokens.T)


def sglang_trees(verify, rng, V=20):
    """Return whether two fixed paths are written. SGLang's are paths of trees; here, chains."""
    for text in ([3, 4, 5, 18], [11, 12, 18]):
        # The target's rows are one-hot, at the tokens of the text. The draft's rows are equal
        # to them, without the last row, which is for the bonus token.
        rows = np.eye(V)[text]
        tokens = rounds(verify, rows[:-1], rows, 1, rng)
        if tokens.tolist() != [text]:
            return False
    return True


def top_100(rng, V):
    """Return a random row with 100 tokens."""
    row = rng.random(V)
    all_but_largest = np.argsort(row)[:-100]
    row[all_but_largest] = 0
    return row / row.sum()


def tensorrt_llm(verify, rng, V=500, n=50_000):
    """Return whether first tokens and plain draws have the same divergence, to within 0.01."""
    draft = top_100(rng, V)
    target = top_100(rng, V)
    bonus = rng.random(V)
    # One guess per round; draft[None] is [1, V].
    tokens = rounds(verify, draft[None], np.stack([target, bonus / bonus.sum()]), n, rng)
    plain = rng.choice(V, n, p=target)
    support = target > 0  # the other terms of a divergence are 0

    def divergence(tokens):
        """Return KL(target, frequencies)."""
        # If a token of the support did not come, the divergence is infinite. Two infinite
        # divergences differ by NaN, which is not below 0.01, so the verifier does not pass.
        with np.errstate(divide="ignore"):
            logs = np.log(target[support] / shares_of_tokens(tokens, V)[support])
        return (target[support] * logs).sum()

    return abs(divergence(tokens[:, 0]) - divergence(plain)) < 0.01


def transformers(verify, rng, V=10, n=10_000):
    """Return whether the first two guesses are always accepted, and the third guess never.

    Four tokens replace the third guess, and their counts have an order.
    """
    # transformers' test has rows with the logits 10 and -10, which are one-hot here. The
    # guesses are the tokens 1, 4 and 5.
    draft = np.eye(V)[[1, 4, 5]]
    # The target's third row has four tokens, and not guess 5.
    third_logits = np.full(V, -np.inf)
    third_logits[[1, 3, 7, 8]] = 2, 1, -0.01, 2
    bonus_row = np.zeros(V)  # never used, because guess 5 is rejected
    target = np.stack([np.eye(V)[1], np.eye(V)[4], softmax(third_logits), bonus_row])
    tokens = rounds(verify, draft, target, n, rng)
    # Column 3 has no token, which is -1.
    if (tokens[:, :2] != [1, 4]).any() or (tokens[:, 3] >= 0).any():
        return False
    # A missing third token, -1, counts as token 0, which is not among the four. So the four
    # counts add up to n only if every round has a third token.
    counts = np.bincount(np.maximum(tokens[:, 2], 0), minlength=V)
    is_ordered = counts[1] > counts[3] > counts[7] > 0 and counts[8] > counts[3]
    return bool(is_ordered and counts[[1, 3, 7, 8]].sum() == n)


def flashinfer(verify, rng, V=111, B=99, K=3):
    """Return whether a one-hot target writes its tokens, and any other only ids < V."""
    for is_one_hot in (True, False):
        guesses = rng.integers(V, size=(B, K + 1))
        p_draft = rng.random((B, K, V))
        p_draft /= p_draft.sum(axis=-1, keepdims=True)
        p_target = rng.random((B, K + 1, V))
        p_target /= p_target.sum(axis=-1, keepdims=True)
        # A one-hot target replaces these rows, which are drawn in both cases.
        # The columns 0 .. K - 1 of `guesses` are guesses. A one-hot target accepts them all,
        # and then writes column K as the bonus token.
        if is_one_hot:
            p_target = np.eye(V)[guesses]
        for _ in range(10):
            tokens = verify(guesses[:, :K], p_draft, p_target, rng.random((B, K + 1)))
            if is_one_hot and (tokens != guesses).any():
                return False
            if (tokens >= V).any():
                return False
    return True


def oracle(verify, rng):
    """Return whether the oracle calls the verifier exact; rng is not used."""
    return bool(check(verify).exact)


class Protocol(NamedTuple):
    """Hold a test, how often it is run for each rule, and its public source."""

    passes: Callable
    runs: int
    source: str


def url_of_file(repository, commit, path):
    """Return the address of a file at a commit."""
    return f"https://github.com/{repository}/blob/{commit}/{path}"


VLLM = url_of_file("vllm-project/vllm", "0822b17a5fbdb70b87c755232f3de0dff8a81b72",
                   "tests/v1/spec_decode/test_rejection_sampler_utils.py")
PROTOCOLS = {
    "vLLM V1": Protocol(vllm_v1, 100, url_of_file(
        "vllm-project/vllm", "004fce2d0b6ad5146fa0f32b5e777dc8f5112d80",
        "tests/v1/sample/test_rejection_sampler.py")),
    "vLLM wide": Protocol(
        partial(vllm_marginals, V=4096, n=40_960, is_opposite=False), 2, VLLM),
    "vLLM narrow": Protocol(
        partial(vllm_marginals, V=16, n=200_000, is_opposite=True), 20, VLLM),
    "SGLang": Protocol(sglang_trees, 100, url_of_file(
        "sgl-project/sglang", "120affb9613cc3f5bcd055ec09c7621d3ced0ebc",
        "sgl-kernel/tests/speculative/test_speculative_sampling.py")),
    "TensorRT-LLM": Protocol(tensorrt_llm, 20, url_of_file(
        "NVIDIA/TensorRT-LLM", "476ab24800f17b6133153dd1d8c961c79ca56ccd",
        "tests/unittest/_torch/speculative/test_torch_rejection_sampling.py")),
    "transformers": Protocol(transformers, 100, url_of_file(
        "huggingface/transformers", "cf63921b9648e760a9a72a3c84bf797f17d1e140",
        "tests/generation/test_utils.py")),
    "FlashInfer": Protocol(flashinfer, 20, url_of_file(
        "flashinfer-ai/flashinfer", "f5e3febcb90b1dead3df092d4aabeea15d4e4d47",
        "tests/utils/test_sampling.py")),
    "oracle": Protocol(oracle, 1, "../exact/oracle.py"),
}
RIGHT = ("ratio", "match", "traversal")
VERIFIERS = {rule_id: EXACT[rule_id] for rule_id in RIGHT} | WRONG


# ---- figures

def all_figures(args):
    """Return {id of a rule: {protocol: [runs passed, runs]}}."""
    figures = {}
    for rule_id, verify in VERIFIERS.items():
        # The seed is the rule's sentence: a new rule does not change the figures of the others.
        rng = np.random.default_rng([*BY_ID[rule_id].name.encode()])
        figures[rule_id] = {}
        for name, (passes, runs, _) in PROTOCOLS.items():
            n_passed = sum(bool(passes(verify, rng)) for _ in range(runs))
            figures[rule_id][name] = [n_passed, runs]
    return figures


def share(n_passed, runs):
    """Return the share of runs that passed, with its standard error unless it is 0 or 1."""
    p = n_passed / runs
    error = np.sqrt(p * (1 - p) / runs)
    # If p is 0 or 1 the error is 0.
    return f"{p:.2f} +- {error:.2f}" if error else f"{p:.0f}"


def paragraphs(figures, args):
    """Yield the table, with links to the tests."""
    links = [f"[{name}]({protocol.source})" for name, protocol in PROTOCOLS.items()]
    lines = []
    for rule_id, row in figures.items():
        verdict = "exact" if rule_id in EXACT else "**no**"
        shares = [share(*row[name]) for name in PROTOCOLS]
        lines.append([rule_id, BY_ID[rule_id].name, verdict, *shares])
    # A wrong rule passes a protocol if more than half of its runs pass.
    wrong = [row for rule_id, row in figures.items() if rule_id in WRONG]
    n_passing = []
    for name, protocol in PROTOCOLS.items():
        n_passing.append(sum(row[name][0] > protocol.runs / 2 for row in wrong))
    label = f"wrong rules (of {len(wrong)}) that pass in most runs"
    lines.append(["", label, "", *n_passing])
    yield markdown_table(["id", "rule", "exact?", *links], lines)


BENCHMARK = command.Benchmark(__doc__, all_figures, paragraphs)
