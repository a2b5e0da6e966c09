"""Export a GPT-2 for other programs, as a Hugging Face folder or a GGUF file for llama.cpp.

    python -m tools.export 124M exported/124M
    python -m tools.export tales-large exported/tales-large.gguf
    python main.py --target_model_size exported/124M     # the folder can be read back

Transformers, vLLM and other engines read a Hugging Face folder. The bundled models are such
folders already. docs/engines.md says how engines load both formats.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lib.checkpoints import gguf, huggingface
from lib.terminal import Parser, command
from utils import MODELS_DIR, find_folder, load_encoder_hparams_and_params


def checked_flags(argv: Sequence[str] | None) -> Namespace:
    """Return the flags; ValueError if a file would be overwritten."""
    parser = Parser("python -m tools.export", description=__doc__.split("\n")[0])
    parser.add_argument("model", help="a GPT-2, named as in main.py's --target_model_size")
    parser.add_argument("path", type=Path,
                        help="where to write the model: a file for llama.cpp if the name ends "
                        "in .gguf, otherwise a Hugging Face folder")
    parser.add_argument("--models_dir", default=MODELS_DIR, type=Path,
                        help="folder of the models (default: the repository's models/)")
    parser.add_argument("--dtype", choices=["float16", "float32"], default="float32",
                        help="precision of the weights (default: float32)")
    args = parser.parse_args(argv)
    path = args.path
    # Everything is checked before the weights are loaded, which takes long.
    # An empty folder is overwritten, because it loses nothing.
    is_empty_folder = path.is_dir() and not any(path.iterdir())
    if path.exists() and not is_empty_folder:
        raise ValueError(f"{path} already exists: choose a new name")
    model_folder = find_folder(args.model, args.models_dir)
    if model_folder.is_file():
        raise ValueError(f"need a GPT-2 in a folder, got the file {model_folder}")
    return args


@command("tools.export", "requirements/engines.txt")
def main(argv=None):
    """Run the command line."""
    args = checked_flags(argv)
    is_gguf = args.path.suffix == ".gguf"
    dtype = np.dtype(args.dtype)
    # A GGUF file holds vectors in float32, whatever the dtype of the matrices is. So the
    # weights are loaded in float32, and write_file rounds the matrices.
    encoder, hparams, params = load_encoder_hparams_and_params(
        args.model, args.models_dir, np.dtype(np.float32) if is_gguf else dtype)
    if is_gguf:
        gguf.write_file(args.path, encoder, hparams, params, dtype)
        print(f"{args.path}: {args.path.stat().st_size / 1e6:.1f} MB")
        return
    huggingface.write_folder(args.path, encoder, hparams, params)
    print(f"{args.path}: " + ", ".join(sorted(path.name for path in args.path.iterdir())))


if __name__ == "__main__":
    sys.exit(main())
