"""What --K auto, --widths auto or --decoder stopping measured, kept for the next run here.

    auto-<key>.json      the costs, in SPECULATIVE_CACHE_DIR, else the user's folder for such files
    key                  the models' files, the arrays' kind and type, the product, the machine,
                         and which sampling settings are on, for they cost time too

A file that cannot be read, is damaged, or cannot be written is no error: the costs are measured
anew, in the first rounds of the text.
"""

import contextlib
import hashlib
import json
import math
import os
import platform
import sys
import time
from functools import partial
from pathlib import Path

from lib.backend import products
from lib.checkpoints.download import atomic
from sampling import with_sampling
from variants import stopping
from variants.auto import K_MAX, Costs, Measuring, auto, auto_measuring
from variants.registry import Models
from variants.tree import best_trees

OFF = {"temperature": 0, "top_k": 0, "top_p": 1, "repetition_penalty": 1}


class Auto:
    """What needs measured costs, for one text: its step, the K (how many guesses, if it is not
    --K auto) that it chose, and the seconds that knowing the costs took."""

    def __init__(self, task, draft, target):
        start, self.path, self.chosen = time.perf_counter(), find_path(task, target), []
        self.measuring, choosing = measuring_and_choosing(task, draft, target)
        self.known = read(self.path)
        on_choice = lambda K, alpha: self.chosen.append(K)
        self.step = (choosing(self.known, on_choice) if self.known else
                     auto_measuring(self.measuring, on_choice, partial(write, self.path), choosing))
        self.reading_s = time.perf_counter() - start

    @property
    def measuring_s(self):
        """The seconds of reading the file, or of that and the rounds in which K was tried out."""
        return self.reading_s + self.measuring.seconds


def measuring_and_choosing(task, draft, target):
    """The Measuring, and the builder `(costs, on_choice, seen) -> step` for what it finds."""
    models = Models(draft, target, task.sampling)
    pair = [with_sampling(model, **task.sampling) for model in (draft, target)]
    if task.decoder == "stopping":
        pair, choosing = stopping.measured(models), stopping.choosing(models)
    else:
        choosing = (best_trees(models, task.settings["siblings"]) if task.is_tree
                    else partial(auto, *pair))
    return Measuring(*pair, time.perf_counter), choosing


def cache_folder(environ=os.environ, system=sys.platform):
    """Where this user's programs keep what they can do without."""
    if environ.get("SPECULATIVE_CACHE_DIR"):
        return Path(environ["SPECULATIVE_CACHE_DIR"])
    home = Path(os.path.expanduser("~"))
    folders = {"win32": environ.get("LOCALAPPDATA") or home / "AppData" / "Local",
               "darwin": home / "Library" / "Caches"}
    usual = environ.get("XDG_CACHE_HOME") or home / ".cache"
    return Path(folders.get(system, usual)) / "speculative-decoding"


def find_path(task, target):
    """The file of these costs; None if the models are from no files."""
    try:
        files = [(str(path), os.stat(path).st_size, os.stat(path).st_mtime_ns)
                 for path in map(os.path.realpath, task.files)]
    except OSError:
        return None
    on = [(name, value == OFF[name]) for name, value in sorted(task.sampling.items())]
    # greedy, stopping reads its draft at temperature 1: a step then takes a softmax
    soft = task.decoder == "stopping" and task.sampling["temperature"] == 0
    key = [files, type(target.cache).__module__, str(target.cache.dtype), products.name(), K_MAX,
           platform.node(), platform.machine(), os.cpu_count(), on, soft]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    return cache_folder() / f"auto-{digest}.json" if files else None


def read(path):
    """The Costs in a file, or None."""
    try:
        kept = json.loads(path.read_bytes())
        costs = Costs(float(kept["c"]), [float(cost) for cost in kept["pass_cost"]])
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    numbers = [costs.c, *costs.pass_cost]
    good = len(numbers) == K_MAX + 2 and all(0 < n < math.inf for n in numbers)
    return costs if good else None


def write(path, costs):
    """Keep the costs if that can be done; a file is replaced as a whole."""
    if path is None:
        return
    with contextlib.suppress(OSError), atomic(path) as file:
        file.write(json.dumps(costs._asdict()).encode())
