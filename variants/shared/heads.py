"""Read heads.safetensors, a target's heads for medusa.py, blockwise.py, markov.py, eagle.py."""

import hashlib
from pathlib import Path

import numpy as np

from cache import to_host
from lib.checkpoints.weights import checked_array, open_arrays


def fingerprint(wte):
    """Return a hash of the target's token embeddings, which identifies the target."""
    # In float16, so that a target has one fingerprint in every precision.
    return hashlib.sha256(to_host(wte).astype(np.float16).tobytes()).hexdigest()


def open_heads(models):
    """Return `weight(name, *shape)`, which reads an array of the target's heads.

    `weight(name)`, without a shape, accepts every shape.

    ValueError if the file is absent, broken or for a different target, or if an array is
    absent, has a different shape or a number that is not finite.
    """
    path = None
    if models.folder:
        path = Path(models.folder) / "heads.safetensors"
    if path is None or not path.exists():
        raise ValueError(f"there are no heads for this target: no file {path} (tales-large has "
                         "heads; models/training trains them)")
    wte = models.target.params["wte"]
    stored, metadata = open_arrays(path)
    this_target = fingerprint(wte)
    trained_for = metadata.get("target", this_target)  # a file without the entry is accepted
    if trained_for != this_target:
        raise ValueError(f"the heads in {path} were not trained for this target: their "
                         f"target's fingerprint is {trained_for[:8]!r}, this target's "
                         f"{this_target[:8]!r}")

    def weight(name, *shape):
        array = np.array(checked_array(stored, name, path, *shape))
        if min(array.shape, default=0) < 1:  # no axis, or an axis of length 0
            raise ValueError(f"need {name} in {path} with a row for each head, got shape "
                             f"{array.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"need finite weights in {path}, got NaN or inf in {name}")
        # In the target's precision, and on its device.
        return np.asarray(array, wte.dtype, like=wte)

    return weight
