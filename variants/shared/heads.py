"""Read heads.safetensors, a target's heads for medusa.py, blockwise.py, markov.py, eagle.py."""

import hashlib
from pathlib import Path

import numpy as np
from safetensors import safe_open

from cache import to_host
from lib.checkpoints.weights import Weights, open_arrays

NAME = "heads.safetensors"
MODELS_DIR = Path(__file__).parents[2] / "models"
KEEP = "eagle/keep"


def fingerprint(gains):
    """Return a hash of the gains of the target's last norm: the same in every precision.

    No rounding of matrices changes the gains, so heads are found for a rounded target too. A
    fine-tuned target with the same gains gets the heads as well: they may guess worse.
    """
    return hashlib.sha256(to_host(gains).astype(np.float16).tobytes()).hexdigest()


def find_heads(folder, this_target):
    """Return the path of a target's heads: its folder's file, or the file in models/ for it."""
    def target_of(path):
        _, metadata = open_arrays(path)
        return metadata.get("target", this_target)  # a file without the entry is accepted

    own = Path(folder) / NAME if folder else None
    if own and own.exists():
        if target_of(own) != this_target:
            raise ValueError(f"the heads in {own} were not trained for this target: their "
                             f"target's fingerprint is {target_of(own)[:8]!r}, this target's "
                             f"{this_target[:8]!r}")
        return own
    for path in sorted(MODELS_DIR.glob(f"*/{NAME}")):
        if target_of(path) == this_target:
            return path
    no_own = f"no file {own}, and " if own else ""
    raise ValueError(f"there are no heads for this target: {no_own}no file in {MODELS_DIR} was "
                     "trained for it (models/training trains heads)")


def open_heads(models):
    """Return the Weights of the target's heads: weight(name, *shape) reads an array."""
    gains = models.target.params["ln_f"]["g"]
    path = find_heads(models.folder, fingerprint(gains))

    def change(name, array):
        if min(array.shape, default=0) < 1:  # no axis, or an axis of length 0
            raise ValueError(f"need {name} in {path} with a row for each head, got shape "
                             f"{array.shape}")
        # In the target's precision, and on its device.
        return np.asarray(np.array(array), gains.dtype, like=gains)

    return Weights(open_arrays(path)[0], path, change)


def read_keep(path, n_vocab):
    """Return the ids of the tokens that EAGLE's head can guess; None if it can guess all."""
    with safe_open(path, framework="numpy") as file:
        if KEEP not in file.keys():
            return None
        keep = file.get_tensor(KEEP)
    are_numbers = keep.dtype.kind == "i" and keep.ndim == 1 and keep.size > 0
    # keep[0] is the smallest and keep[-1] the largest, if they ascend.
    if not (are_numbers and (np.diff(keep) > 0).all() and 0 <= keep[0] <= keep[-1] < n_vocab):
        raise ValueError(f"need {KEEP} in {path} to be ascending ids below n_vocab = "
                         f"{n_vocab}, got {keep.dtype} of shape {keep.shape}: {keep!s:.80}")
    return keep
