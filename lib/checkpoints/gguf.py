"""Write GPT-2 as a GGUF file, for llama.cpp and programs built on it.

The package gguf names the weights and writes the format.
"""

from contextlib import closing
from pathlib import Path

import numpy as np

from lib.checkpoints.files import atomic
from lib.checkpoints.huggingface import transformers_name
from lib.checkpoints.vocabulary import merge_lines
from lib.checkpoints.weights import flatten


def write_file(path, encoder, hparams, params, dtype=np.float32):
    """Write a model, loaded as utils loads it, to one file: whole or not at all.

    Matrices are written as `dtype`, float32 or float16. Vectors are written as float32, which
    llama.cpp requires. The unembedding is not written: then llama.cpp uses wte, as GPT-2 does.
    """
    import gguf  # imported here because only this format needs it

    writer = gguf.GGUFWriter(None, "gpt2")
    writer.add_context_length(hparams["n_ctx"])
    writer.add_embedding_length(hparams["n_embd"])
    writer.add_feed_forward_length(4 * hparams["n_embd"])
    writer.add_block_count(hparams["n_layer"])
    writer.add_head_count(hparams["n_head"])
    writer.add_layer_norm_eps(1e-5)
    add_tokenizer(writer, encoder, gguf.TokenType)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GPT2, hparams["n_layer"])
    for name, weight in flatten(params):
        # GGUF stores a projection as [n_out, n_in].
        array = weight.T if name.endswith("/w") else weight
        # wpe has two axes too, but it is a list of vectors.
        is_matrix = array.ndim == 2 and name != "wpe"
        array = np.ascontiguousarray(array, dtype if is_matrix else np.float32)
        # The library translates transformers' name of a weight to llama.cpp's name.
        full_name = f"transformer.{transformers_name(name)}"
        writer.add_tensor(names.get_name(full_name, (".weight", ".bias")), array)
    with atomic(path) as file, closing(writer):
        # The library opens the file by its name, a second time.
        writer.write_header_to_file(Path(file.name))
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()


def add_tokenizer(writer, encoder, token_types):
    """Write the vocabulary, the merges, and the name of the pattern that splits a text."""
    symbols = sorted(encoder.vocab, key=encoder.vocab.get)  # by id
    types = []
    for symbol in symbols:
        is_special = symbol in encoder.special
        types.append(token_types.USER_DEFINED if is_special else token_types.NORMAL)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")  # the split pattern
    writer.add_token_list(symbols)
    if encoder.end_of_text is not None:
        # The end of a text is a control token, which engines do not print.
        types[encoder.end_of_text] = token_types.CONTROL
        writer.add_bos_token_id(encoder.end_of_text)
        writer.add_eos_token_id(encoder.end_of_text)
    writer.add_token_types(types)
    writer.add_token_merges(merge_lines(encoder))
    writer.add_add_bos_token(False)  # GPT-2 is prompted without a first token
