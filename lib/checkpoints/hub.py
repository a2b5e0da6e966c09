"""Find a model's folder by its path, or by its name on Hugging Face's hub: owner/name.

    snapshot   the hub's word for one version of a model: a folder in its cache on this machine

The package huggingface_hub, which comes with transformers, fetches a snapshot once. Later runs
read the snapshot without a network, and do not look for a newer version.
"""

import contextlib
import re
from functools import partial
from pathlib import Path

from lib.backend.arrays import in_one_line
from lib.checkpoints.files import read_json
from lib.checkpoints.huggingface import is_model

HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")  # owner/name; the oldest models have no owner
INSTALL = "pip install -r requirements/peers.txt"
# Settings, tokenizers and weights of the top folder. Python code and pickles are not fetched.
ALLOWED = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
IGNORED = ["*/*", "consolidated*"]  # weights in the layouts of other programs


def model_folder(name: str) -> Path:
    """Return the folder of a model, given its path or its name on the hub."""
    if is_name(name):
        return fetched_folder(name)
    if not Path(name).is_dir():
        raise ValueError(f"no such folder: {name}")
    return Path(name)


def is_name(name: str) -> bool:
    """Return whether a text may name a model on the hub: no folder here has this name."""
    return HUB_NAME.fullmatch(name) is not None and not Path(name).is_dir()


def fetched_folder(name: str) -> Path:
    """Return a model's folder in the hub's cache; fetch it if it is missing there."""
    try:
        from huggingface_hub import snapshot_download  # here: a folder does not need it
    except ImportError:
        raise ValueError(f"{name!r} is not a folder, and fetching a model of this name from "
                         f"the hub needs huggingface_hub: {INSTALL}") from None
    snapshot = partial(snapshot_download, name, allow_patterns=ALLOWED, ignore_patterns=IGNORED)
    with contextlib.suppress(OSError, ValueError):  # not in the cache, or not a hub's name
        folder = Path(snapshot(local_files_only=True))
        if is_complete(folder):
            return folder
    try:
        folder = Path(snapshot())
    except Exception as error:  # the hub's HTTP library has errors that are not OSErrors
        # The package explains a lost connection in three sentences; its cause has one.
        cause = error.__cause__ if isinstance(error, FileNotFoundError) else None
        raise ValueError(f"{name!r} is not a folder, and the hub's model of this name cannot "
                         f"be fetched: {in_one_line(cause or error)}") from None
    if not is_complete(folder):
        raise ValueError(f"the hub's copy of {name!r} lacks config.json or files of "
                         "model*.safetensors (weights in other formats are not read)")
    return folder


def is_complete(folder: Path) -> bool:
    """Return whether a folder has a model's settings and all of its files of weights."""
    if not is_model(folder):
        return False
    # The index of a model in several files names the file of each weight.
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return True
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict):
        raise ValueError(f"need a weight_map in {index}, got {weight_map!r:.80}")
    return all((folder / str(file)).is_file() for file in set(weight_map.values()))
