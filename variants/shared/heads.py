"""Read heads.safetensors, a target's heads for medusa.py, blockwise.py, markov.py, eagle.py."""

import hashlib
from pathlib import Path

import numpy as np

from gpt2 import to_host
from lib.checkpoints import tensors


def fingerprint(wte):
    """Return a hash that identifies the target: of its token embeddings in float16."""
    return hashlib.sha256(to_host(wte).astype(np.float16).tobytes()).hexdigest()


def open_heads(models):
    """Return `take(name, *shape)`, which reads an array of the target's heads; no shape is any.

    ValueError if there is no file, it is broken or names a different target, or an array is
    absent, has a different shape, or a number in it is not finite.
    """
    path = models.folder and Path(models.folder) / "heads.safetensors"
    if not path or not path.exists():
        raise ValueError(f"there are no heads for this target: no file {path} (tales-large has "
                         "heads; models/training trains them)")
    wte = models.target.params["wte"]
    stored, metadata = tensors.open_arrays(path)
    own = fingerprint(wte)
    named = metadata.get("target", own)
    if named != own:
        raise ValueError(f"need heads that were trained for this target, {own[:8]}, in {path}, "
                         f"got heads for {named[:8]!r}")

    def take(name, *shape):
        weight = np.array(tensors.checked_array(stored, name, path, *shape))
        if min(weight.shape, default=0) < 1:
            raise ValueError(f"need {name} in {path} with a row for each head, got shape "
                             f"{weight.shape}")
        if not np.isfinite(weight).all():
            raise ValueError(f"need finite weights in {path}, got NaN or inf in {name}")
        return np.asarray(weight, wte.dtype, like=wte)

    return take
