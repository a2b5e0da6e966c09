"""Run the Triton kernels of SGLang and vLLM by Triton's interpreter, which needs no GPU.

The installed file is run unchanged. Its imports from its own package are replaced, so it needs
neither a GPU nor the package's many dependencies. Its random numbers are arguments, and every
outcome is enumerated (boxes.py):

    uniforms   one per guess: is the guess accepted?
    ids_at     uniforms -> the tokens of a round: the accepted guesses and one more
    row_at     uniforms -> the distribution of that last token, which has its own random number

The engine's random generator is therefore not tested, nor the way it draws its guesses.
"""

import builtins
import importlib.metadata
import inspect
import os
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

import numpy as np

from exact.engines.boxes import Point, boxes, race_distribution, widths
from exact.toys import best
from sampling import sample
from speculative import guess


class Kernel(NamedTuple):
    """Hold a kernel with its guesses and rows: two functions of the uniforms."""

    ids_at: Callable[[Point], tuple[int, ...]]
    row_at: Callable[[Point], np.ndarray]


# ---- one round

@cache
def outcomes(bind, guesses, p_draft, p_target):
    """Return [(probability, accepted guesses, row of the last token)] for guesses and rows."""
    with np.errstate(divide="ignore", invalid="ignore"):  # logarithms of 0 in vLLM's kernels
        kernel = bind(guesses, p_draft, p_target)
        return [(volume, ids[:-1], kernel.row_at(point))
                for volume, ids, point in boxes(kernel.ids_at, len(guesses))]


def as_tuples(rows):
    """Return rows as tuples of floats, by which `outcomes` can be cached."""
    return tuple(tuple(map(float, row)) for row in rows)


def kernel_round(x, rng, draft, target, K, bind, one_hot=False):
    """Return the tokens of one round as a kernel tests the guesses, which are drawn here.

    One-hot guesses are the draft's most probable tokens, tested without rows of the draft.
    """
    make_guesses = best if one_hot else guess
    guesses, p_draft = make_guesses(x, K, rng, draft)
    draft_rows = None if one_hot else as_tuples(p_draft)
    target_rows = as_tuples(target(x + guesses, K + 1))
    found = outcomes(bind, tuple(guesses), draft_rows, target_rows)
    probabilities, accepted, rows = zip(*found)  # entry i is for outcome i
    # rng picks one of the kernel's outcomes, then the last token: exact/law.py enumerates both
    branch = sample(np.array(probabilities), rng)
    return [*accepted[branch], sample(rows[branch], rng)]


def round_by_kernel(bind, one_hot=False, **settings):
    """Return one round of a kernel with these settings, in the form that is enumerated."""
    return partial(kernel_round, bind=partial(bind, **settings), one_hot=one_hot)


# ---- files of packages

def names_of_file(package: str, path: str, **names):
    """Run an installed file; return the names that it defines.

    What the file imports from its own package comes from `names`; an import of anything else
    from the package gets a Mock, because the code under test does not use it.
    """
    file = importlib.metadata.distribution(package).locate_file(path)
    # triton reads the variable when it is imported, and later changes have no effect
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise ImportError("need TRITON_INTERPRET=1 before triton is imported")
    os.environ["TRITON_INTERPRET"] = "1"
    import triton
    import triton.language as tl

    stand_in = mock.Mock(triton=triton, tl=tl, **names)  # has every attribute

    def import_(name, *args):
        is_own = name.split(".")[0] == package
        return stand_in if is_own else builtins.__import__(name, *args)

    # Python's `import` statement calls the __import__ of the file's builtins
    scope = {"__name__": path, "__builtins__": vars(builtins) | {"__import__": import_}}
    exec(compile(Path(str(file)).read_text(encoding="utf-8"), str(file), "exec"), scope)
    return scope


def tensor(values, dtype=np.float32):
    """Return the values as a tensor."""
    import torch

    return torch.tensor(np.array(values, dtype))


# ---- SGLang: its random numbers are arguments

@cache
def load_sglang():
    """Return the names of SGLang's file."""
    return names_of_file("sglang", "sglang/kernels/ops/speculative/reject_sampling.py")


def sglang_kernel(guesses, p_draft, p_target, block_verification=False):
    """Return SGLang's kernel, which draws the last token by inversion, from the uniform `last`."""
    verify = load_sglang()["chain_speculative_sampling_triton"]
    k = len(guesses)

    def ids_at(uniforms, last=0.5):
        ids = tensor([-1] * (k + 1), np.int32)
        n_accepted = tensor([0], np.int32)
        positions = tensor([range(k + 1)], np.int64)
        verify(
            predicts=ids,  # written by the kernel, as are the next two
            accept_index=positions.clone(),
            accept_token_num=n_accepted,
            candidates=tensor([[-1, *guesses]], np.int64),  # column 0: the token before them
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

    def row_at(uniforms):
        # how much of [0, 1) gives each token, with the same uniforms for the guesses
        share = widths(lambda last: ids_at(uniforms, last)[-1])
        return np.array([share.get(token, 0) for token in range(len(p_target[0]))])

    return Kernel(ids_at, row_at)


# ---- vLLM, v1/sample: the kernels rejection_random_sample and sample_recovered_tokens

# In vLLM's file `dispatch(..)` gets the tensors, and returns the grid and the constants of a call
# of the kernel. vLLM's launcher then passes the tensors by position. Here they are passed by name:
# the kernel's parameter `x_ptr` is the argument `x` of dispatch.

def launcher(kernel, warmup_inputs):
    """Replace vLLM's launcher: pass each argument to the kernel's parameter of that name."""
    def decorate(dispatch):
        def launch(*args, **kwargs):
            arguments = inspect.signature(dispatch).bind(*args, **kwargs).arguments
            grid, constants = dispatch(**arguments)
            # the kernel's parameters are the constants and the tensors
            names = inspect.signature(kernel.fn).parameters.keys() - constants.keys()
            tensors = {name: arguments[name.removesuffix("_ptr")] for name in names}
            kernel[grid](**tensors, **constants)

        return launch

    return decorate


@cache
def load_vllm_sample():
    """Return the names of vLLM's file of its first model runner."""
    return names_of_file(
        "vllm", "vllm/v1/sample/rejection_sampler.py",
        triton_kernel_dispatcher_with_warmup=launcher)


def vllm_sample(guesses, p_draft, p_target):
    """Return vLLM's kernels. A replacement is the winner of a race of exponentials.

    vLLM's ordinary sampler draws the bonus token, so the kernels get a number outside the
    vocabulary in its place.
    """
    import torch

    rejection_sample = load_vllm_sample()["rejection_sample"]
    k = len(guesses)
    n_vocab = len(p_target[0])
    bonus = n_vocab  # a number that is not a token
    equal = (1.0,) * n_vocab
    settings = SimpleNamespace(all_greedy=False, all_random=True, temperature=torch.ones(1),
                               generators={})

    def ids_at(uniforms, speeds=equal):
        numbers = tensor(uniforms, np.float64)
        times = 1 / tensor([speeds])  # the exponentials E
        # the file calls torch.rand for the uniforms, and exponential_ for the race
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
        # the rest of the array is -1
        return tuple(token for token in ids[0].tolist() if token >= 0)

    def row_at(uniforms):
        if ids_at(uniforms)[-1] == bonus:
            return np.array(p_target[-1])
        # the same guesses are accepted with all speeds: only the last token changes
        return race_distribution(lambda speeds: ids_at(uniforms, speeds)[-1], n_vocab)

    return Kernel(ids_at, row_at)


# ---- vLLM, v1/worker/gpu: its uniforms and its noise are hashes of seed and position

@cache
def load_vllm_gpu():
    """Return the names of the file, and a namespace through which its kernels are driven.

    `noise.uniforms` are used instead of hashes. A run of the kernel sets `noise.logits` to the
    last token's logits: `argmax` keeps them, where vLLM's function would add Gumbel noise.
    Triton's interpreter has no log1p, so log1p is replaced too.
    """
    noise = SimpleNamespace(uniforms=(), logits=None)

    # `tl` in these functions is assigned below, before they are called
    def uniform(seed, position, includes_zero):
        return tl.full((), noise.uniforms[int(position)], tl.float32)

    def argmax(logits, *args, **kwargs):
        noise.logits = logits.handle.data  # the NumPy array of the interpreter's tensor
        return tl.max(logits, axis=0, return_indices=True)

    log1p = SimpleNamespace(log1p=lambda x: tl.log(1 + x))
    scope = names_of_file(
        "vllm", "vllm/v1/worker/gpu/spec_decode/rejection_sampler_utils.py",
        tl_rand32=uniform, spec_step_seed=lambda seed, step: seed,
        gumbel_block_argmax=argmax, tldevice=log1p)
    tl = scope["tl"]  # triton.language
    return scope, noise


def load_vllm():
    """Load both files of vLLM."""
    load_vllm_sample()
    load_vllm_gpu()


def vllm_gpu(guesses, p_draft, p_target, block_verification=False):
    """Return the kernels of vLLM's second model runner, for one request at temperature 1."""
    scope, noise = load_vllm_gpu()
    k = len(guesses)
    positions = tensor(range(k + 1), np.int64)
    request = tensor([0], np.int32)  # the first and only one

    def ids_at(uniforms):
        noise.uniforms = (*uniforms, 0.5)  # the last one, after the guesses, tests nothing
        ids, n_ids = scope["rejection_sample"](
            target_logits=tensor(p_target).log(),
            draft_logits=None if p_draft is None else tensor([p_draft]).log(),
            draft_sampled=tensor([-1, *guesses], np.int64),  # entry 0: the token before them
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

    def row_at(uniforms):
        ids_at(uniforms)  # sets noise.logits
        # the kernel fills its block up behind the vocabulary
        weights = np.exp(noise.logits[: len(p_target[0])].astype(np.float64))
        return weights / weights.sum()

    return Kernel(ids_at, row_at)
