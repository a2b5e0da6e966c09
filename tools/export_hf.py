"""Write any model as a Hugging Face folder: for transformers, vLLM, or any engine that reads it.

    python -m tools.export_hf tales-large exported/tales-large
    python main.py --target_model_size exported/tales-large     # and it can be read back

config.json comes last: a folder without it is of no kind, so an interrupted export is never loaded.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from lib.checkpoints import huggingface
from lib.checkpoints.download import atomic
from lib.checkpoints.weights import flatten
from encoder import END_OF_TEXT
from utils import MODELS_DIR, load_encoder_hparams_and_params


def export(folder, encoder, hparams, params, dtype=None):
    """Write a model, loaded as utils loads it, to a folder; None: in their own dtype."""
    def write(name, text):
        with atomic(folder / name) as file:
            file.write(text.encode())

    with atomic(folder / "model.safetensors") as file:
        huggingface.write_weights(file, {
            f"transformer.{huggingface.their_name(name)}": weight.astype(dtype or weight.dtype)
            for name, weight in flatten(params)})
    merges = [f"{left} {right}" for left, right in sorted(encoder.ranks, key=encoder.ranks.get)]
    write("vocab.json", json.dumps(encoder.vocab))
    write("merges.txt", "\n".join(["#version: 0.2", *merges, ""]))
    write("tokenizer_config.json", json.dumps(tokenizer_config(encoder, hparams), indent=2))
    write("tokenizer.json", json.dumps(tokenizer(encoder, merges)))
    write("generation_config.json", json.dumps({"bos_token_id": encoder.end_of_text,
                                                "eos_token_id": encoder.end_of_text}))
    dtype = np.dtype(dtype or params["wte"].dtype)
    write("config.json", json.dumps(huggingface.config(hparams, encoder.end_of_text, dtype),
                                    indent=2))


def tokenizer_config(encoder, hparams):
    """What tokenizer_config.json says of our byte-level BPE."""
    end = END_OF_TEXT if encoder.end_of_text is not None else None
    return {"tokenizer_class": "GPT2Tokenizer", "model_max_length": hparams["n_ctx"],
            "add_prefix_space": False, "add_bos_token": False,
            "clean_up_tokenization_spaces": False,
            "bos_token": end, "eos_token": end, "unk_token": end}


def tokenizer(encoder, merges):
    """What tokenizer.json says of it: for engines that read neither vocab.json nor merges.txt."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}
    special = {"content": END_OF_TEXT, "id": encoder.end_of_text, "special": True,
               "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"version": "1.0", "truncation": None, "padding": None, "normalizer": None,
            "added_tokens": [special] if encoder.end_of_text is not None else [],
            "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "byte_fallback": False,
                      "continuing_subword_prefix": "", "end_of_word_suffix": "",
                      "fuse_unk": False, "vocab": encoder.vocab, "merges": merges}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", help="as main.py's --target_model_size")
    parser.add_argument("folder", type=Path, help="where to write it")
    parser.add_argument("--models_dir", default=MODELS_DIR, type=Path)
    parser.add_argument("--dtype", choices=["float16", "float32", "float64"], default="float32")
    args = parser.parse_args()
    read = np.float64 if args.dtype == "float64" else np.float32
    try:
        export(args.folder, *load_encoder_hparams_and_params(args.model, args.models_dir, read),
               np.dtype(args.dtype))
    except (ValueError, OSError) as error:
        sys.exit(f"export_hf: {error}")
    print(f"{args.folder}: " + ", ".join(sorted(path.name for path in args.folder.iterdir())))


if __name__ == "__main__":
    main()
