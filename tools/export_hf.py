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
from lib.terminal import command
from utils import MODELS_DIR, load_encoder_hparams_and_params


def export(folder, encoder, hparams, params):
    """Write a model, loaded as utils loads it, to a folder; weights in their own dtype."""
    dtype, end = params["wte"].dtype, encoder.symbols.get(encoder.end_of_text)
    added = {symbol: encoder.vocab[symbol] for symbol in encoder.special & encoder.vocab.keys()}
    for name in ("config.json", "generation_config.json", "tokenizer.json"):  # of a former model
        (folder / name).unlink(missing_ok=True)
    write_weights(folder, params, dtype)
    for name, text in {
            "vocab.json": json.dumps(encoder.vocab),
            "added_tokens.json": json.dumps(added),
            "merges.txt": "\n".join(["#version: 0.2", *merges(encoder), ""]),
            "tokenizer_config.json": json.dumps({
                "tokenizer_class": "GPT2Tokenizer", "bos_token": end, "eos_token": end,
                "unk_token": end}),
            "config.json": json.dumps(config(hparams, encoder.end_of_text, dtype))}.items():
        with atomic(folder / name) as file:
            file.write(text.encode())


def write_weights(folder, params, dtype):
    """Write model.safetensors."""
    weights = {f"transformer.{their_name(name)}": weight.astype(dtype, copy=False)
               for name, weight in flatten(params)}
    tensors.write_file(folder / "model.safetensors", weights, {"format": "pt"})


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


def parse_args(argv, doc, place, dtypes):
    """Return the flags of this program, or of export_gguf; ValueError if a model would be lost."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("model", help="as main.py's --target_model_size")
    parser.add_argument("path", metavar=place, type=Path, help="where to write it")
    parser.add_argument("--models_dir", default=MODELS_DIR, type=Path)
    parser.add_argument("--dtype", choices=dtypes, default="float32")
    parser.add_argument("--cut_vocab", action="store_true",
                        help="leave out rows of the embedding beyond the vocabulary")
    parser.add_argument("--force", action="store_true", help="overwrite what is there")
    args = parser.parse_args(argv)
    path = args.path
    if path.exists() and not args.force and (path.is_file() or any(path.iterdir())):
        raise ValueError(f"need a new name, or --force to overwrite it, got {path}")
    return args


@command("export_hf")
def main(argv=None):
    args = parse_args(argv, __doc__, "folder", ("float16", "float32", "float64"))
    export(args.path, *load_encoder_hparams_and_params(
        args.model, args.models_dir, np.dtype(args.dtype), cut_vocab=args.cut_vocab))
    print(f"{args.path}: " + ", ".join(sorted(path.name for path in args.path.iterdir())))


if __name__ == "__main__":
    sys.exit(main())
