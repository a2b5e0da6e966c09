"""Test GGUF files: written and read back. (test_benchmarks.py has llama.cpp's own texts.)"""

import numpy as np
import pytest

from encoder import Encoder
from lib.checkpoints.gguf import write_file
from lib.checkpoints.weights import flatten, random_params
from tests.checkpoints import HPARAMS, SYMBOLS, TINY

gguf = pytest.importorskip("gguf", reason="needs requirements/engines.txt")
HPARAMS = HPARAMS | {"n_vocab": TINY.n_vocab}


@pytest.fixture(scope="module", params=[np.float16, np.float32])
def written(request, tmp_path_factory):
    """Return a tiny model, and what the library reads in its file."""
    params = random_params(HPARAMS, np.random.default_rng(0), np.float32)
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_file(path, TINY, HPARAMS, params, request.param)
    return request.param, dict(flatten(params)), gguf.GGUFReader(path)


NAMES = {  # in files of llama.cpp's own converter
    "wte": "token_embd.weight", "wpe": "position_embd.weight", "ln_f/g": "output_norm.weight",
    "h1/ln_1/b": "blk.1.attn_norm.bias", "h1/attn/c_attn/w": "blk.1.attn_qkv.weight",
    "h0/attn/c_proj/w": "blk.0.attn_output.weight", "h0/ln_2/g": "blk.0.ffn_norm.weight",
    "h1/mlp/c_fc/b": "blk.1.ffn_up.bias", "h1/mlp/c_proj/w": "blk.1.ffn_down.weight"}


def test_the_weights_are_read_back_bit_by_bit(written):
    dtype, weights, reader = written
    tensors = {tensor.name: tensor.data for tensor in reader.tensors}
    assert len(tensors) == len(weights)
    for ours, theirs in NAMES.items():
        weight = weights[ours].T if ours.endswith("/w") else weights[ours]
        stored = tensors[theirs]
        kind = dtype if weight.ndim == 2 and ours != "wpe" else np.float32
        assert stored.dtype == kind and (stored == weight.astype(kind)).all()


def assert_has_fields(reader, expected):
    """Refuse a file in which a field has a different value."""
    assert {name: reader.fields[name].contents() for name in expected} == expected


def test_the_sizes_and_the_vocabulary_are_read_back(written):
    assert_has_fields(written[2], {
        "general.architecture": "gpt2", "gpt2.context_length": 16, "gpt2.embedding_length": 12,
        "gpt2.feed_forward_length": 48, "gpt2.block_count": 2, "gpt2.attention.head_count": 3,
        "gpt2.attention.layer_norm_epsilon": np.float32(1e-5), "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": SYMBOLS,
        "tokenizer.ggml.merges": ["a b"], "tokenizer.ggml.eos_token_id": 257,
        "tokenizer.ggml.token_type": [1] * 257 + [3]})  # normal, control


def test_tokens_are_written_in_the_order_of_their_ids_and_merges_in_theirs(tmp_path):
    symbols = [*SYMBOLS[:-1], "ba", "<added>", "<|endoftext|>"]
    vocab = {symbol: token for token, symbol in reversed([*enumerate(symbols)])}
    encoder = Encoder(vocab, [("b", "a"), ("a", "b")], added=["<added>"])
    hparams = HPARAMS | {"n_vocab": len(symbols)}
    params = random_params(hparams, np.random.default_rng(0))
    write_file(tmp_path / "a.gguf", encoder, hparams, params)
    assert_has_fields(gguf.GGUFReader(tmp_path / "a.gguf"), {
        "tokenizer.ggml.tokens": symbols, "tokenizer.ggml.merges": ["b a", "a b"],
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.token_type": [1] * 258 + [4, 3]})  # normal, user-defined, control
