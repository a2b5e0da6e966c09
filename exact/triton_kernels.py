"""Run the Triton kernels that SGLang and vLLM ship on a CPU, by Triton's interpreter.

The installed file is run as it is. What it imports from its own package is replaced, so it
needs neither a GPU nor the package's many dependencies. Its random numbers are given to it, and
every outcome is enumerated (exact/boxes.py):

    uniforms   one per guess: is it accepted?
    ids        uniforms -> the tokens of a round: the accepted guesses and one more
    row        uniforms -> the distribution of that last token, over its own random number

How an engine makes its random numbers is therefore not tested, nor how it draws its guesses.
"""

import builtins
import importlib.metadata
import inspect
import os
import sys
from collections.abc import Callable
from functools import cache, partial
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

import numpy as np

from exact.boxes import boxes, race, widths
from exact.rules import best
from sampling import sample
from speculative import guess


class Kernel(NamedTuple):
    """Hold a kernel with its guesses and rows: two functions of the uniforms."""

    ids: Callable
    row: Callable


# ---- one round

@cache
def outcomes(bind, guesses, p_draft, p_target):
    """Return [(probability, accepted guesses, row of the last token)] for guesses and rows."""
    with np.errstate(divide="ignore", invalid="ignore"):  # logarithms of 0 in vLLM's kernels
        kernel = bind(guesses, p_draft, p_target)
        return [(volume, ids[:-1], kernel.row(point))
                for volume, ids, point in boxes(kernel.ids, len(guesses))]


def as_tuples(rows):
    return tuple(tuple(map(float, row)) for row in rows)


def kernel_round(x, rng, draft, target, K, bind, one_hot=False):
    """Return the tokens of one round as a kernel tests the guesses; they are drawn here.

    One-hot guesses are the draft's most probable tokens, tested without rows of the draft.
    """
    make_guesses = best if one_hot else guess
    guesses, p_draft = make_guesses(x, K, rng, draft)
    draft_rows = None if one_hot else as_tuples(p_draft)
    target_rows = as_tuples(target(x + guesses, K + 1))
    probabilities, accepted, rows = zip(*outcomes(bind, tuple(guesses), draft_rows, target_rows))
    branch = sample(np.array(probabilities), rng)
    return [*accepted[branch], sample(rows[branch], rng)]


def round_of(bind, one_hot=False, **settings):
    """Return one round, as exact/engines.py enumerates it, of a kernel with these settings."""
    return partial(kernel_round, bind=partial(bind, **settings), one_hot=one_hot)


# ---- files of packages

def load(package, path, **names):
    """Run an installed file; return its names. `names` replace those of its package."""
    file = importlib.metadata.distribution(package).locate_file(path)
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise ImportError("need TRITON_INTERPRET=1 before triton is imported")
    os.environ["TRITON_INTERPRET"] = "1"
    import triton
    import triton.language as tl

    stand_in = mock.Mock(triton=triton, tl=tl, **names)

    def import_(name, *args):
        return stand_in if name.split(".")[0] == package else builtins.__import__(name, *args)

    scope = {"__name__": path, "__builtins__": vars(builtins) | {"__import__": import_}}
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), scope)
    return scope


def tensor(values, dtype=np.float32):
    import torch

    return torch.tensor(np.array(values, dtype))


# ---- SGLang: its random numbers are arguments

@cache
def load_sglang():
    return load("sglang", "sglang/kernels/ops/speculative/reject_sampling.py")


def sglang(guesses, p_draft, p_target, block_verification=False):
    """Return SGLang's kernel. Its last token is drawn by inverse distribution with `last`."""
    verify = load_sglang()["chain_speculative_sampling_triton"]
    k = len(guesses)

    def run(uniforms, last=0.5):
        ids = tensor([-1] * (k + 1), np.int32)
        n_accepted = tensor([0], np.int32)
        positions = tensor([range(k + 1)], np.int64)
        verify(
            predicts=ids,  # written by the kernel, as are the next two
            accept_index=positions.clone(),
            accept_token_num=n_accepted,
            candidates=tensor([[-1, *guesses]], np.int64),
            retrive_index=positions,
            retrive_next_token=None,
            retrive_next_sibling=None,
            uniform_samples=tensor([uniforms]),
            uniform_samples_for_final_sampling=tensor([last]),
            target_probs=tensor([p_target]),
            draft_probs=tensor([p_draft]),
            threshold_single=1.0,
            threshold_acc=1.0,
            deterministic=True,
            block_verification=block_verification)
        return tuple(ids[: n_accepted.item() + 1].tolist())

    def row(uniforms):
        found = widths(lambda last: run(uniforms, last)[-1])
        return np.array([found.get(token, 0) for token in range(len(p_target[0]))])

    return Kernel(run, row)


# ---- vLLM, v1/sample: the kernels rejection_random_sample and sample_recovered_tokens

def launcher(kernel, warmup_inputs):
    """Replace vLLM's launcher: pass each argument to the kernel's parameter of that name."""
    def decorate(dispatch):
        def launch(*args, **kwargs):
            given = inspect.signature(dispatch).bind(*args, **kwargs).arguments
            grid, constants = dispatch(**given)
            names = inspect.signature(kernel.fn).parameters.keys() - constants.keys()
            tensors = {name: given[name.removesuffix("_ptr")] for name in names}
            kernel[grid](**tensors, **constants)

        return launch

    return decorate


@cache
def load_vllm_sample():
    return load("vllm", "vllm/v1/sample/rejection_sampler.py",
                triton_kernel_dispatcher_with_warmup=launcher)


def vllm_sample(guesses, p_draft, p_target):
    """Return vLLM's kernels. A replacement wins a race of exponentials.

    Its ordinary sampler draws the bonus token, here a number outside the vocabulary.
    """
    import torch

    rejection_sample = load_vllm_sample()["rejection_sample"]
    k = len(guesses)
    bonus = len(p_target[0])
    equal = (1.0,) * bonus
    settings = SimpleNamespace(all_greedy=False, all_random=True, temperature=torch.ones(1),
                               generators={})

    def run(uniforms, speeds=equal):
        numbers = tensor(uniforms, np.float64)
        times = 1 / tensor([speeds])
        with (mock.patch.object(torch, "rand", lambda *size, **kind: numbers),
              mock.patch.object(torch.Tensor, "exponential_", lambda E: E.copy_(times))):
            ids = rejection_sample(
                draft_token_ids=tensor(guesses, np.int32),
                num_draft_tokens=[k],
                max_spec_len=k,
                cu_num_draft_tokens=tensor([k], np.int32),
                draft_probs=None if p_draft is None else tensor(p_draft),
                target_logits=tensor(p_target[:-1]).log(),
                bonus_token_ids=tensor([[bonus]], np.int64),
                sampling_metadata=settings)
        return tuple(token for token in ids[0].tolist() if token >= 0)

    def row(uniforms):
        if run(uniforms)[-1] == bonus:
            return np.array(p_target[-1])
        return race(lambda speeds: run(uniforms, speeds)[-1], bonus)

    return Kernel(run, row)


# ---- vLLM, v1/worker/gpu: its uniforms and its noise are hashes of seed and position

@cache
def load_vllm_gpu():
    """Return the file's names, and the numbers that replace the hashes: `uniforms`, `logits`.

    `logits` are those of the last token, to which Gumbel noise would be added. Triton's
    interpreter has no log1p, so that is replaced too.
    """
    noise = SimpleNamespace(uniforms=(), logits=None)

    def uniform(seed, position, includes_zero):
        return tl.full((), noise.uniforms[int(position)], tl.float32)

    def argmax(logits, *args, **kwargs):
        noise.logits = logits.handle.data
        return tl.max(logits, axis=0, return_indices=True)

    log1p = SimpleNamespace(log1p=lambda x: tl.log(1 + x))
    scope = load("vllm", "vllm/v1/worker/gpu/spec_decode/rejection_sampler_utils.py",
                 tl_rand32=uniform, spec_step_seed=lambda seed, step: seed,
                 gumbel_block_argmax=argmax, tldevice=log1p)
    tl = scope["tl"]
    return scope, noise


def load_vllm():
    """Load both files."""
    load_vllm_sample()
    load_vllm_gpu()


def vllm_gpu(guesses, p_draft, p_target, block_verification=False):
    """Return the kernels of vLLM's second model runner, for one request at temperature 1."""
    scope, noise = load_vllm_gpu()
    k = len(guesses)
    positions = tensor(range(k + 1), np.int64)
    request = tensor([0], np.int32)  # the first and only one

    def run(uniforms):
        noise.uniforms = (*uniforms, 0.5)
        ids, n_ids = scope["rejection_sample"](
            target_logits=tensor(p_target).log(),
            draft_logits=None if p_draft is None else tensor([p_draft]).log(),
            draft_sampled=tensor([-1, *guesses], np.int64),
            cu_num_logits=tensor([0, k + 1], np.int32),
            pos=positions,
            idx_mapping=request,
            expanded_idx_mapping=request.repeat(k + 1),
            expanded_local_pos=positions.int(),
            temperature=tensor([1.0]),
            seed=request.long(),
            num_speculative_steps=k,
            use_block_verification=block_verification)
        return tuple(ids[0, : n_ids.item()].tolist())

    def row(uniforms):
        run(uniforms)
        weights = np.exp(noise.logits[: len(p_target[0])].astype(np.float64))
        return weights / weights.sum()

    return Kernel(run, row)
