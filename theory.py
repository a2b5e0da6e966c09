"""The papers' closed forms, and why decoding waits for memory.

    python -m theory --table decode --size 1558M

    alpha      the chance that a guess is accepted, averaged over texts        Leviathan: alpha
    K          guesses a round                               Chen: K           Leviathan: gamma
    c          time of one draft step / time of one target row                 Leviathan: c
    c_hat      the same ratio in arithmetic operations                         Leviathan: c^
    pass_cost  time of K + 1 target rows in one pass / time of one row         (the papers: 1)
    r          ids a round / (K + 1)                         Chen: acceptance rate
    n_new n_past   ids that a pass reads, ids that it finds in the cache: n_seq = n_past + n_new
    n_last     ids whose logits a pass returns
    n_bytes    BYTES an element: 4 for float32, 2 for float16, 0.5 for four bits
    FLOP       one addition or one multiplication: a multiply-add is two

The formulas in alpha assume that guesses are accepted independently, each with chance alpha. Real
text has easy and hard stretches: they predict, they do not bound.

Every function raises ValueError if an argument is outside the range its docstring gives.
"""

import argparse
from typing import NamedTuple

import numpy as np

# OpenAI's hparams.json, four times. Erratum: Radford et al. (2019) Table 2 counts 117M, 345M, 762M
# and 1542M parameters; the names are the right counts (`n_params`).
GPT2_SIZES = {
    size: dict(n_vocab=50257, n_ctx=1024, n_embd=n_embd, n_head=n_head, n_layer=n_layer)
    for size, n_layer, n_embd, n_head in [("124M", 12, 768, 12), ("355M", 24, 1024, 16),
                                          ("774M", 36, 1280, 20), ("1558M", 48, 1600, 25)]
}


def need(holds, what, got):
    """Raise the ValueError of a front door unless `holds`."""
    if not holds:
        raise ValueError(f"need {what}, got {got}")


def need_positive(**numbers):
    """Raise unless each of them is positive and finite."""
    for name, number in numbers.items():
        need(0 < number < np.inf, f"0 < {name} < inf", number)


def whole(count, least):
    """Whether `count` is a whole number and at least `least` (a NaN is not)."""
    return count >= least and count % 1 == 0


# ---- how many ids, how fast

def acceptance_rate(p_target, p_draft):
    """The chance that a guess drawn from `p_draft` is accepted: what the two laws share.

    Parameters
    ----------
    p_target, p_draft : array_like, [..., n_vocab], rows >= 0 with sum 1 (to 1e-6)

    Returns
    -------
    float in [0, 1], or ndarray [...]
        `sum(min(p_target, p_draft))` = 1 - TV = 1 - D_LK. Its mean over the places of a text is
        alpha, with less variance than a count of accepted guesses.

    References
    ----------
    Leviathan et al. (2023) Theorem 3.5, Corollary 3.6. Their D_LK, the distance of either law from
    the mean of both, is the total variation distance TV.

    Examples
    --------
    >>> p_target, p_draft = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.75, 0.0])
    >>> float(acceptance_rate(p_target, p_draft))
    0.5
    >>> float(1 - abs(p_target - (p_target + p_draft) / 2).sum())  # 1 - D_LK
    0.5
    """
    p_target, p_draft = np.asarray(p_target, np.float64), np.asarray(p_draft, np.float64)
    need(p_target.shape == p_draft.shape and p_target.size, "two laws over the same tokens",
         f"shapes {p_target.shape} and {p_draft.shape}")
    for law in (p_target, p_draft):
        need((law >= 0).all() and (abs(law.sum(axis=-1) - 1) <= 1e-6).all(),
             "probabilities >= 0 with sum 1", f"smallest {law.min()}, sum {law.sum(axis=-1)}")
    return np.minimum(1.0, np.minimum(p_target, p_draft).sum(axis=-1))  # rounding: 1 + 2e-16


def expected_tokens(alpha, K):
    """How many ids a round yields on average, the resampled or bonus id included.

    Parameters
    ----------
    alpha : float in [0, 1]
    K : int, >= 0

    Returns
    -------
    float in [1, K + 1]
        `1 + alpha + ... + alpha**K` = (1 - alpha**(K + 1)) / (1 - alpha): guess t counts if it and
        all before it were accepted. The sum has no special case at alpha = 1.

    References
    ----------
    Leviathan et al. (2023) Eq. 1.

    Examples
    --------
    >>> [round(expected_tokens(0.7, K), 4) for K in (1, 3, 5)]
    [1.7, 2.533, 2.9412]
    >>> expected_tokens(0.0, 4), expected_tokens(1.0, 4)
    (1.0, 5.0)
    """
    need(0 <= alpha <= 1, "0 <= alpha <= 1", alpha)
    need(whole(K, 0), "K a whole number >= 0", K)
    return sum(alpha**t for t in range(int(K) + 1))


def walltime_improvement(alpha, K, c, pass_cost=1):
    """How many times faster than one target row an id.

    Parameters
    ----------
    alpha, K
        As for `expected_tokens`.
    c : float, >= 0
    pass_cost : float, > 0
        The papers' 1 holds where memory alone sets the pace. In NumPy on few cores it does not:
        five rows may cost two or three.

    Returns
    -------
    float
        `expected_tokens(alpha, K) / (K * c + pass_cost)`. With pass_cost = 1 some K improves if and
        only if alpha > c, and then K = 1 does, by (1 + alpha) / (1 + c).

    References
    ----------
    Leviathan et al. (2023) Theorem 3.8, Corollary 3.9, Table 4. Three of that table's twelve EXP
    values (2.4, 2.0, 1.6 in rows 5, 6, 12) are not what its alpha and c give (2.35, 1.93, 1.54);
    its alpha and c before rounding may be why. Its c = 0.11 for T5-large contradicts Definition
    3.7 ("always less than 0.05"). Appendix A.5's 2.5, 3.1, 3.6 and 5 for c = 0.015 are above
    the formula at any K: 2.33, 2.94, 3.45, 4.79.

    Examples
    --------
    >>> round(walltime_improvement(alpha=0.75, K=7, c=0.02), 1)  # Table 4, row 1
    3.2
    >>> round(walltime_improvement(alpha=0.75, K=7, c=0.02, pass_cost=2.1), 1)
    1.6
    """
    need(0 <= c < np.inf, "0 <= c < inf", c)
    need_positive(pass_cost=pass_cost)
    return expected_tokens(alpha, K) / (K * c + pass_cost)


def operations_factor(alpha, K, c_hat):
    """How many times more arithmetic than one target row an id: the price of rejected guesses.

    Parameters
    ----------
    alpha, K
        As for `expected_tokens`.
    c_hat : float, >= 0

    Returns
    -------
    float
        `(K * c_hat + K + 1) / expected_tokens(alpha, K)`.

    References
    ----------
    Leviathan et al. (2023) Theorem 3.11, Table 1.

    Examples
    --------
    >>> round(operations_factor(alpha=0.8, K=5, c_hat=0), 2)  # Table 1, row 4
    1.63
    """
    need(0 <= c_hat < np.inf, "0 <= c_hat < inf", c_hat)
    return (K * c_hat + K + 1) / expected_tokens(alpha, K)


def best_K(alpha, c, pass_cost=None, K_max=100):
    """The K of the largest `walltime_improvement`, the smallest of equals; 0: draft nothing.

    Parameters
    ----------
    alpha, c
        As for `walltime_improvement`.
    pass_cost : sequence of float > 0, optional
        `pass_cost[K]`: the measured cost of K + 1 rows in units of one row, so `pass_cost[0]` is 1.
        No K beyond its end is considered. Default: 1 throughout, as in the papers.
    K_max : int, >= 0

    Returns
    -------
    int in [0, K_max]

    Notes
    -----
    Every K is tried. Equal costs would allow to stop at the first decrease: K + 1 beats K while
    `alpha**(K + 1) * (K * c + 1) > c * expected_tokens(alpha, K)`, and left minus right only falls
    as K grows. Measured costs are not so tame: 8 rows can be cheaper than 5. At c = 0, or at
    alpha = 1 > c, K_max is the answer (or where one more guess is lost in rounding).

    References
    ----------
    Leviathan et al. (2023) Sec. 3.5.

    Examples
    --------
    >>> best_K(0.8, 0.05), best_K(0.9, 0.2), best_K(0.2, 0.3)
    (8, 7, 0)
    >>> best_K(0.8, 0.05, pass_cost=[1, 2.6, 2.5, 2.7, 3.3, 4, 4, 2.1])
    7
    """
    need(whole(K_max, 0), "K_max a whole number >= 0", K_max)
    costs = [1] * (int(K_max) + 1) if pass_cost is None else list(pass_cost)[: int(K_max) + 1]
    need(costs, "pass_cost of one row at least", "an empty sequence")
    gains = [walltime_improvement(alpha, K, c, cost) for K, cost in enumerate(costs)]
    return max(range(len(gains)), key=gains.__getitem__)


def chen_speedup(r, K, t_draft, t_target):
    """`walltime_improvement` from what Chen et al. (2023) report: ids a round, measured.

    Parameters
    ----------
    r : float in (0, 1]
        The resampled or bonus id counts. Erratum: the paper says tokens "accepted" for "decoded".
    K : int, >= 0
    t_draft, t_target : float, >= 0 and > 0, in one unit of time
        One step of the draft; one pass of the target, over one row or K + 1.

    Returns
    -------
    float
        `r * (K + 1) * t_target / (K * t_draft + t_target)`.

    References
    ----------
    Chen et al. (2023) Table 1, Fig. 1. Measured there: 2.46 (HumanEval), 1.92 (XSum). Erratum: the
    times beside the latter give 14.1 / 7.52 = 1.88.

    Examples
    --------
    >>> [round(chen_speedup(r, K=4, t_draft=1.8, t_target=14.1), 2) for r in (0.8, 0.62)]
    [2.65, 2.05]
    """
    need(0 < r <= 1, "0 < r <= 1", r)
    need(whole(K, 0), "K a whole number >= 0", K)
    need(0 <= t_draft < np.inf, "0 <= t_draft < inf", t_draft)
    need_positive(t_target=t_target)
    return r * (K + 1) * t_target / (K * t_draft + t_target)


# ---- what a pass costs, on paper

def pass_latency(n_params, n_bytes, bandwidth, flop_rate, batch=1):
    """Seconds for the memory and for the arithmetic of one pass; the larger sets the pace.

    Parameters
    ----------
    n_params, n_bytes, batch : > 0
        `batch`: the rows of the pass, of several texts or the K + 1 of one.
    bandwidth, flop_rate : > 0
        Of the machine: bytes a second, FLOP a second.

    Returns
    -------
    (memory, compute) : floats, seconds
        `n_params * n_bytes / bandwidth`, each parameter read once, and
        `2 * n_params * batch / flop_rate`, a multiply-add for each parameter and row.

    References
    ----------
    Timbers (2023), "How is LLaMa.cpp possible?"; see `crossover_batch`.

    Examples
    --------
    >>> memory, compute = pass_latency(70e9, 2, bandwidth=1935e9, flop_rate=312e12)
    >>> f"{1e3 * memory:.1f} ms, {1e3 * compute:.2f} ms"
    '72.4 ms, 0.45 ms'
    """
    need_positive(n_params=n_params, n_bytes=n_bytes, bandwidth=bandwidth, flop_rate=flop_rate,
                  batch=batch)
    return n_params * n_bytes / bandwidth, 2 * n_params * batch / flop_rate


def crossover_batch(n_bytes, bandwidth, flop_rate):
    """The batch at which arithmetic overtakes memory, and rows cease to be free.

    Parameters
    ----------
    n_bytes, bandwidth, flop_rate
        As for `pass_latency`.

    Returns
    -------
    float
        `n_bytes * flop_rate / (2 * bandwidth)`.

    Notes
    -----
    The published 161 (Timbers 2023) is an A100 in float16: 312 TFLOP/s, 1935 GB/s and n_bytes = 2
    here. Errata: the memory term printed with it, `2 * n_params * n_bytes / bandwidth`, gives 161
    with n_bytes = 1 only (with 2, 322): its 2 already is float16's two bytes. An article that
    quotes it has n_bytes "16 for FP16", which is bits, and an A100 of 40 GB, which has 1555 GB/s
    and a crossover at 201; 1935 GB/s belong to the one of 80 GB.

    Examples
    --------
    >>> int(crossover_batch(n_bytes=2, bandwidth=1935e9, flop_rate=312e12))
    161
    """
    memory, compute = pass_latency(1, n_bytes, bandwidth, flop_rate)
    return memory / compute


def linear_cost(n_rows, n_in, n_out, weight_bytes=2, row_bytes=2):
    """Bytes moved and FLOP done by one weight matrix: [n_rows, n_in] @ [n_in, n_out].

    Parameters
    ----------
    n_rows, n_in, n_out, weight_bytes, row_bytes : > 0
        `weight_bytes`, `row_bytes`: an element of the matrix, one of what goes in and comes out.

    Returns
    -------
    (moved, flops) : bytes, each element once; FLOP, two a multiply-add

    Notes
    -----
    An article's example is the first feed-forward matrix of "llama2 30B" (Llama 1 it is: 32.5e9
    parameters, 16.3 GB in four bits, not 15) in float16 or four bits, on an RTX 4090 of 1 TB/s and
    330 TFLOP/s. It counts a multiply-add as one, the 330 count it as two, so its computing times
    are half of what they should be.

        printed                           here
        1024 rows  274 MB, 110 MB         288.9 MB (275.5 MiB: 274 is neither), 110.0 MB
                   122 GFlops             122.1e9 multiply-adds, 244.3 GFLOP
                   0.3 ms, 0.1 ms         0.29 ms, 0.11 ms
                   0.3 ms computing       0.74 ms (0.37 ms if a multiply-add were one)
        1 row      238 MB, 60 MB          238.6 MB, 59.7 MB
                   120 MFlops             119.3e6 multiply-adds, 238.6 MFLOP
                   0.25 ms, 0.05 ms       0.24 ms, 0.06 ms
                   0.3 us computing       0.72 us (0.36 us)

    One row alone then takes 330 times as long as one of 1024 (printed: "almost three orders").

    Examples
    --------
    >>> for n_rows in (1024, 1):
    ...     moved, flops = linear_cost(n_rows, 6656, 17920)
    ...     f"{moved / 1e6:.1f} MB, {flops / 1e9:.2f} GFLOP, {1e3 * moved / 1e12:.2f} ms to move"
    '288.9 MB, 244.28 GFLOP, 0.29 ms to move'
    '238.6 MB, 0.24 GFLOP, 0.24 ms to move'
    """
    need_positive(n_rows=n_rows, n_in=n_in, n_out=n_out, weight_bytes=weight_bytes,
                  row_bytes=row_bytes)
    moved = weight_bytes * n_in * n_out + row_bytes * n_rows * (n_in + n_out)
    return moved, 2 * n_rows * n_in * n_out


# ---- arithmetic intensity, step by step

class Row(NamedTuple):
    """One step of a transformer layer, all heads together."""

    step: str
    flops: int
    elements: int  # factors read and product written, each once
    intensity: float | None  # FLOP a byte; None where the slides count nothing


def product(step, m, k, n, n_bytes, count=1):
    """The Row of `count` products [m, k] @ [k, n]."""
    flops, elements = 2 * count * m * k * n, count * (m * k + k * n + m * n)
    return Row(step, flops, elements, flops / (n_bytes * elements))


def intensity_table(n_new, n_past, n_embd, n_head, n_bytes=2):
    """One layer step by step: how much arithmetic for each byte moved.

    Parameters
    ----------
    n_new, n_past : int, >= 1 and >= 0
        Prefill of L ids: (L, 0). Decoding after L ids: (1, L). Verifying K guesses: (K + 1, L).
    n_embd, n_head : int, > 0, n_embd a multiple of n_head
        The slides' D and n_H; their H is d_head.
    n_bytes : float, > 0

    Returns
    -------
    list of Row (step, flops, elements, intensity)
        13 as on the slides; 15 with a cache.

    Notes
    -----
    A dense step has intensity L D / (2 L + D), in the feed-forward pair 4 L D / (5 L + 4 D): about
    L as long as L is far below D, so that the K + 1 rows of a verification move hardly more than
    one. The slides' multiply-adds per element are the same numbers as FLOP per byte in float16.
    GPT-2's c_attn is W_Q, W_K and W_V in one; its gelu stands for their relu. Erratum of the
    slides: scores are divided by sqrt(H), not sqrt(D) (Vaswani et al. (2017) Eq. 1). They leave out
    residual sums, normalisation and the causal mask.

    References
    ----------
    Yuan, COMP4901Y, slides "Speculative Decoding", tables "Prefill" and "Decoding".

    Examples
    --------
    >>> L, D = 1023, 1600
    >>> intensity_table(L, 0, D, 25)[0].intensity == L * D / (2 * L + D)
    True
    >>> intensity_table(1, L, D, 25)[0].intensity == D / (2 + D)
    True
    """
    need(whole(n_new, 1) and whole(n_past, 0), "whole numbers n_new >= 1, n_past >= 0",
         f"{n_new}, {n_past}")
    need_positive(n_embd=n_embd, n_head=n_head, n_bytes=n_bytes)
    need(n_embd % n_head == 0, "n_head to divide n_embd", f"{n_head}, {n_embd}")
    n_seq, d_head = n_past + n_new, n_embd // n_head
    dense = lambda step, n_in, n_out: [product(step, n_new, n_in, n_out, n_bytes)]
    uncounted = lambda *steps: [Row(step, 0, 0, None) for step in steps]
    after_cache = lambda step: uncounted(step) if n_past else []
    return [
        *dense("Q = x W_Q", n_embd, n_embd),
        *dense("K = x W_K", n_embd, n_embd), *after_cache("K after its cache"),
        *dense("V = x W_V", n_embd, n_embd), *after_cache("V after its cache"),
        *uncounted("Q into heads", "K into heads", "V into heads"),
        product("Score = softmax(Q K^T / sqrt(H))", n_new, d_head, n_seq, n_bytes, n_head),
        product("Z = Score V", n_new, n_seq, d_head, n_bytes, n_head),
        *uncounted("Z from heads"),
        *dense("Out = Z W_O", n_embd, n_embd),
        *dense("A = Out W_1", n_embd, 4 * n_embd), *uncounted("A' = gelu(A)"),
        *dense("x' = A' W_2", 4 * n_embd, n_embd),
    ]


# ---- GPT-2's sizes

def n_params(hparams):
    """How many parameters a GPT-2 has. `hparams` is the dict in hparams.json, here and below.

    wte and wpe, n_layer blocks of 12 n_embd**2 + 13 n_embd, ln_f. The unembedding is wte again.

    >>> [n_params(hparams) for hparams in GPT2_SIZES.values()]
    [124439808, 354823168, 774030080, 1557611200]
    """
    d = hparams["n_embd"]
    block = 12 * d**2 + 13 * d  # c_attn 3, c_proj 1, c_fc 4, c_proj 4; their biases, ln_1, ln_2
    return (hparams["n_vocab"] + hparams["n_ctx"]) * d + hparams["n_layer"] * block + 2 * d


def pass_flops(hparams, n_new=1, n_past=0, n_last=1):
    """The FLOP of one pass's matrix products: about 2 n_params an id. 1 <= n_last <= n_new.

    n_layer times the sum of `intensity_table`, and 2 n_last n_vocab n_embd for the logits.

    >>> round(pass_flops(GPT2_SIZES["124M"]) / (2 * n_params(GPT2_SIZES["124M"])), 2)
    0.99
    """
    check_room(hparams, n_new, n_past)
    need(1 <= n_last <= n_new, f"1 <= n_last <= n_new = {n_new}", n_last)
    layer = intensity_table(n_new, n_past, hparams["n_embd"], hparams["n_head"])
    logits = 2 * n_last * hparams["n_vocab"] * hparams["n_embd"]
    return hparams["n_layer"] * sum(row.flops for row in layer) + logits


def pass_bytes(hparams, n_new=1, n_past=0, n_bytes=4):
    """The bytes that one pass must move at least, if its activations stay in the processor.

    Each parameter once (of wpe the rows of the new ids only); the cache, n_past ids read and n_new
    written. Five rows for the price of one is what speculative decoding lives on:

    >>> hparams = GPT2_SIZES["1558M"]
    >>> round(pass_bytes(hparams, n_new=5, n_past=100) / pass_bytes(hparams, 1, 100), 4)
    1.0004
    """
    check_room(hparams, n_new, n_past)
    unread = (hparams["n_ctx"] - n_new) * hparams["n_embd"]
    return n_bytes * (n_params(hparams) - unread) + cache_bytes(hparams, n_past + n_new, n_bytes)


def cache_bytes(hparams, n_seq=None, n_bytes=4):
    """The bytes of the cache: 2 (keys, values) n_layer n_seq n_embd n_bytes. n_seq: default n_ctx.

    >>> [cache_bytes(hparams) // 2**20 for hparams in GPT2_SIZES.values()]  # MiB
    [72, 192, 360, 600]
    """
    n_seq = hparams["n_ctx"] if n_seq is None else n_seq
    need(0 <= n_seq <= hparams["n_ctx"], f"0 <= n_seq <= n_ctx = {hparams['n_ctx']}", n_seq)
    need_positive(n_bytes=n_bytes)
    return 2 * hparams["n_layer"] * n_seq * hparams["n_embd"] * n_bytes


def check_room(hparams, n_new, n_past):
    """Raise unless a pass has an id to read and its ids fit into n_ctx."""
    need(whole(n_new, 1) and whole(n_past, 0) and n_new + n_past <= hparams["n_ctx"],
         f"n_new >= 1, n_past >= 0, n_new + n_past <= n_ctx = {hparams['n_ctx']}",
         f"{n_new}, {n_past}")


# ---- the tables, printed

def report(size, n_new, n_past, n_last, n_bytes):
    """The lines of one table: a layer step by step, its sum, and the whole pass."""
    hparams = GPT2_SIZES[size]
    flops = pass_flops(hparams, n_new, n_past, n_last)
    moved = pass_bytes(hparams, n_new, n_past, n_bytes)
    cache = cache_bytes(hparams, n_past + n_new, n_bytes)
    rows = intensity_table(n_new, n_past, hparams["n_embd"], hparams["n_head"], n_bytes)
    sums = sum(row.flops for row in rows), sum(row.elements for row in rows)
    yield (f"{size}: ids read {n_new}, in the cache before {n_past}; n_embd {hparams['n_embd']}, "
           f"n_head {hparams['n_head']}, {n_bytes} bytes an element")
    yield f"No  {'one layer':34}{'FLOP':>16}{'elements':>14}{'FLOP/byte':>11}"
    for i, row in enumerate(rows, 1):
        yield f"{i:2}  {row.step:34}" + (figures(*row[1:]) if row.flops else f"{'-':>41}")
    yield f"    {'sum':34}" + figures(*sums, sums[0] / (n_bytes * sums[1]))
    yield (f"all {hparams['n_layer']} layers, n_last {n_last}: {flops / 1e9:,.2f} GFLOP, "
           f"{moved / 1e6:,.1f} MB ({cache / 1e6:,.1f} MB of it cache)")


def figures(flops, elements, intensity):
    """The columns of a Row."""
    return f"{flops:16,}{elements:14,}{intensity:11.2f}"


def main(argv=None):
    """Print one of the two tables of arithmetic intensity for a size of GPT-2."""
    parser = argparse.ArgumentParser("python -m theory", description=main.__doc__)
    parser.add_argument("--table", choices=["prefill", "decode"], required=True)
    parser.add_argument("--size", choices=GPT2_SIZES, default="1558M")
    parser.add_argument("--n_seq", type=int, metavar="L", help="ids that the prefill reads, or that"
                        " decoding finds in the cache (default: as many as n_ctx allows)")
    parser.add_argument("--K", type=int, default=0, help="guesses verified with the decoded id")
    parser.add_argument("--n_bytes", type=int, default=2, help="bytes an element (default: 2)")
    args = parser.parse_args(argv)
    n_new = 0 if args.table == "prefill" else args.K + 1
    n_seq = GPT2_SIZES[args.size]["n_ctx"] - n_new if args.n_seq is None else args.n_seq
    shape = (n_seq, 0, 1) if args.table == "prefill" else (n_new, n_seq, n_new)
    try:
        print(*report(args.size, *shape, args.n_bytes), sep="\n")
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
