"""Count the arithmetic and the bytes of a pass: why decoding waits for memory.

    n_new      tokens that a pass reads
    n_past     tokens in the cache before the pass
    n_bytes    size of an element: 4 bytes for float32, 2 for float16, 0.5 for four bits
    FLOP       one addition or one multiplication; a multiply-add is two FLOP

docs/papers.md lists where results differ from a printed source.
"""

from lib.checkpoints.weights import n_params

# the contents of OpenAI's four hparams.json, by the number of parameters. Erratum: Radford et
# al. (2019) Table 2 has other counts of parameters; `n_params` returns the counts in these
# names
GPT2_SIZES = {
    size: dict(n_vocab=50257, n_ctx=1024, n_embd=n_embd, n_head=n_head, n_layer=n_layer)
    for size, n_layer, n_embd, n_head in [("124M", 12, 768, 12), ("355M", 24, 1024, 16),
                                          ("774M", 36, 1280, 20), ("1558M", 48, 1600, 25)]
}


def pass_latency(n_weights: float, n_bytes: float, bandwidth: float,
                 flop_rate: float) -> tuple[float, float]:
    """Return the seconds of memory traffic, and of arithmetic, of a pass over one row.

    Each weight is read once per pass, and is used in one multiply-add per row. So a pass over n
    rows takes as long as its memory traffic or as n times this arithmetic, whichever is longer.
    A row is for one of several texts, or for one of the K + 1 tokens of a text. `bandwidth` is
    in bytes per second, `flop_rate` in FLOP per second. Timbers (2023), "How is LLaMa.cpp
    possible?". (Erratum: the source's memory term has an extra factor 2.) On its A100 of 80 GB
    in float16, arithmetic takes longer than memory from 161 rows on:

    >>> memory, compute = pass_latency(70e9, 2, bandwidth=1935e9, flop_rate=312e12)
    >>> f"{1e3 * memory:.1f} ms, {1e3 * compute:.2f} ms, {int(memory / compute)} rows"
    '72.4 ms, 0.45 ms, 161 rows'
    """
    return n_weights * n_bytes / bandwidth, 2 * n_weights / flop_rate


# ---- a whole pass; `hparams` is the dict in hparams.json

def pass_bytes(hparams: dict, n_new: int = 1, n_past: int = 0, n_bytes: float = 4) -> float:
    """Return the least number of bytes that one pass moves.

    Activations are assumed to stay in the processor. The pass reads each parameter once, but of
    wpe only the rows of the new tokens. It reads the cache of n_past tokens, and writes the
    cache of n_new tokens. Speculation pays because five rows move hardly more bytes than one:

    >>> hparams = GPT2_SIZES["1558M"]
    >>> round(pass_bytes(hparams, n_new=5, n_past=100) / pass_bytes(hparams, 1, 100), 4)
    1.0004
    """
    unread = (hparams["n_ctx"] - n_new) * hparams["n_embd"]  # elements of wpe's other rows
    # the factor 2 counts keys and values
    cache = 2 * hparams["n_layer"] * (n_past + n_new) * hparams["n_embd"]
    return n_bytes * (n_params(hparams) - unread + cache)
