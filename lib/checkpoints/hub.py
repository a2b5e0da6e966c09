"""Find a model's folder by its path, or by its name on Hugging Face's hub: owner/name.

    snapshot   the hub's word for one version of a model: a folder in its cache on this machine

The package huggingface_hub, which comes with transformers, fetches a snapshot once. Later runs
read the snapshot without a network, and do not look for a newer version.
"""

import re
from pathlib import Path

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
    """Return a model's folder in the hub's cache; fetch it if it is missing there.

    ValueError if the model cannot be fetched, or lacks files.
    """
    try:
        import huggingface_hub  # imported here because a folder does not need it
    except ImportError:
        raise ValueError(f"{name!r} is not a folder, and fetching a model of this name from "
                         f"the hub needs huggingface_hub: {INSTALL}") from None
    snapshot = cached_snapshot(huggingface_hub, name) or fetched_snapshot(huggingface_hub, name)
    if not is_complete(snapshot):
        raise ValueError(f"the hub's copy of {name!r} lacks config.json or files of "
                         "model*.safetensors (weights in other formats are not read)")
    return snapshot


def cached_snapshot(hub, name: str) -> Path | None:
    """Return a model's folder in the hub's cache, or None if files are missing there."""
    try:
        folder = hub.snapshot_download(name, allow_patterns=ALLOWED, ignore_patterns=IGNORED,
                                       local_files_only=True)
    except (OSError, ValueError):  # not in the cache, or not a name that the hub allows
        return None
    return Path(folder) if is_complete(Path(folder)) else None


def fetched_snapshot(hub, name: str) -> Path:
    """Fetch a model; ValueError with the reason if it fails. Progress is on standard error."""
    try:
        folder = hub.snapshot_download(name, allow_patterns=ALLOWED, ignore_patterns=IGNORED)
    except Exception as error:  # the hub's HTTP library has errors that are not OSErrors
        raise ValueError(f"{name!r} is not a folder, and the hub's model of this name cannot "
                         f"be fetched: {reason_of(error)}") from None
    return Path(folder)


def reason_of(error: Exception) -> str:
    """Return in a few words why a model could not be fetched."""
    # The package explains a lost connection in three sentences; the error that caused it has
    # one.
    if isinstance(error, FileNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # A server's refusal has a first line with only its status and the number of the request.
    if len(lines) > 1 and hasattr(error, "response"):
        lines = lines[1:]
    first_line = lines[0] if lines else ""
    return f"{type(error).__name__}: {first_line}".removesuffix(".")


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
