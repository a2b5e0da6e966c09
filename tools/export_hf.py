"""Write any model as a Hugging Face folder: for transformers, vLLM, or any engine that reads it.

    python -m tools.export_hf 124M exported/124M
    python main.py --target_model_size exported/124M     # and it can be read back

The bundled models are such folders already. config.json comes last: a folder without it is not a
model, so an interrupted export is never loaded.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from lib.checkpoints import tensors
from lib.checkpoints.files import atomic
from lib.checkpoints.huggingface import FIXED, THEIR_SIZES, their_name
from lib.checkpoints.weights import flatten
from utils import MODELS_DIR, load_encoder_hparams_and_params


def export(folder, encoder, hparams, params, dtype=None):
    """Write a model, loaded as utils loads it, to a folder; None: in their own dtype."""
    dtype = np.dtype(dtype or params["wte"].dtype)
    write_weights(folder, params, dtype)
    write_vocabulary(folder, encoder)
    texts = {"tokenizer_config.json": tokenizer_config(encoder, hparams),
             "tokenizer.json": tokenizer(encoder),
             "generation_config.json": {"bos_token_id": encoder.end_of_text,
                                        "eos_token_id": encoder.end_of_text},
             "config.json": config(hparams, encoder.end_of_text, dtype)}
    for name, content in texts.items():
        write(folder / name, json.dumps(content))


def write(path, text):
    """Write a text file: whole or not at all."""
    with atomic(path) as file:
        file.write(text.encode())


def write_weights(folder, params, dtype):
    """Write model.safetensors."""
    weights = {f"transformer.{their_name(name)}": weight.astype(dtype, copy=False)
               for name, weight in flatten(params)}
    tensors.write_file(folder / "model.safetensors", weights, {"format": "pt"})


def write_vocabulary(folder, encoder):
    """Write vocab.json and merges.txt."""
    write(folder / "vocab.json", json.dumps(encoder.vocab))
    write(folder / "merges.txt", "\n".join(["#version: 0.2", *merges(encoder), ""]))


def merges(encoder):
    """Return the merges as lines, most important first."""
    return [f"{left} {right}" for left, right in sorted(encoder.ranks, key=encoder.ranks.get)]


def config(hparams, end_of_text, dtype):
    """Return what config.json says.

    Engines cast weights to half precision unless it names a dtype, under either of two names;
    llama.cpp's converter looks for n_ctx.
    """
    return {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
            **{name: values[0] for name, values in FIXED.items()},
            **{name: hparams[ours] for ours, name in THEIR_SIZES.items()},
            "n_ctx": hparams["n_ctx"], "dtype": str(dtype), "torch_dtype": str(dtype),
            "bos_token_id": end_of_text, "eos_token_id": end_of_text}


def tokenizer_config(encoder, hparams):
    """Return what tokenizer_config.json says of byte-level BPE."""
    end = encoder.symbols.get(encoder.end_of_text)
    return {"tokenizer_class": "GPT2Tokenizer", "model_max_length": hparams["n_ctx"],
            "add_prefix_space": False, "add_bos_token": False,
            "clean_up_tokenization_spaces": False,
            "bos_token": end, "eos_token": end, "unk_token": end}


def tokenizer(encoder):
    """Return what tokenizer.json says of it: for engines that read no vocab.json."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}
    added = [{"content": symbol, "id": id, "special": True, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False}
             for id, symbol in sorted(encoder.symbols.items()) if symbol in encoder.special]
    return {"version": "1.0", "truncation": None, "padding": None, "normalizer": None,
            "added_tokens": added,
            "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "byte_fallback": False,
                      "continuing_subword_prefix": "", "end_of_word_suffix": "",
                      "fuse_unk": False, "vocab": encoder.vocab, "merges": merges(encoder)}}


def refuse_another_model(path, force):
    """Raise a ValueError if there is a file, or a folder that is not empty, without --force."""
    if path.exists() and not force and (path.is_file() or any(path.iterdir())):
        raise ValueError(f"need a new name, or --force to overwrite it, got {path}")


def parse_args(doc, place, dtypes):
    """Return the flags of this program, or of export_gguf."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("model", help="as main.py's --target_model_size")
    parser.add_argument(place, type=Path, help="where to write it")
    parser.add_argument("--models_dir", default=MODELS_DIR, type=Path)
    parser.add_argument("--dtype", choices=dtypes, default="float32")
    parser.add_argument("--cut_vocab", action="store_true",
                        help="leave out rows of the embedding beyond the vocabulary")
    parser.add_argument("--force", action="store_true", help="overwrite what is there")
    return parser.parse_args()


def main():
    args = parse_args(__doc__, "folder", ("float16", "float32", "float64"))
    read = np.float64 if args.dtype == "float64" else np.float32
    try:
        refuse_another_model(args.folder, args.force)
        export(args.folder, *load_encoder_hparams_and_params(
            args.model, args.models_dir, read, cut_vocab=args.cut_vocab), np.dtype(args.dtype))
    except (ValueError, OSError) as error:
        sys.exit(f"export_hf: {error}")
    print(f"{args.folder}: " + ", ".join(sorted(path.name for path in args.folder.iterdir())))


if __name__ == "__main__":
    main()
