"""Run the Triton kernels of SGLang and vLLM by Triton's interpreter, which needs no GPU.

The installed file is run unchanged. Its imports from its own package are replaced, so it needs
neither a GPU nor the package's many dependencies. The random numbers are arguments of the
kernel here, and every outcome is enumerated (boxes.py):

    uniforms   one uniform per guess, which decides whether the guess is accepted
    ids_at     uniforms -> the tokens of a round: the accepted guesses and the last token
    row_at     uniforms -> the distribution of the last token, which has its own random number

The engine's random generator is therefore not tested, and neither is how it draws its guesses.
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
    """Hold two functions of the uniforms, which run a kernel on given guesses and rows."""

    ids_at: Callable[[Point], tuple[int, ...]]
    row_at: Callable[[Point], np.ndarray]


# ---- one round; bind(guesses, p_draft, p_target) returns a Kernel

@cache
def outcomes(bind, guesses, p_draft, p_target):
    """Return three lists over all boxes: probabilities, accepted guesses, last tokens' rows."""
    probabilities = []
    accepted = []
    rows = []
    with np.errstate(divide="ignore", invalid="ignore"):  # vLLM's kernels take logarithms of 0
        kernel = bind(guesses, p_draft, p_target)
        for volume, ids, point in boxes(kernel.ids_at, len(guesses)):
            probabilities.append(volume)
            accepted.append(ids[:-1])
            rows.append(kernel.row_at(point))
    return probabilities, accepted, rows


def as_tuples(rows):
    """Return rows as tuples of floats, which can be hashed, so that `outcomes` is cached."""
    return tuple(tuple(map(float, row)) for row in rows)


def round_by_kernel(bind, one_hot=False, **settings):
    """Return the function of one round, (x, rng, draft, target, K) -> tokens.

    The guesses are drawn by this project and tested by a kernel. With `one_hot` they are the
    draft's most probable tokens, and the kernel gets no rows of the draft.
    """
    bind_with_settings = partial(bind, **settings)
    make_guesses = best if one_hot else guess

    def one_round(x, rng, draft, target, K):
        guesses, p_draft = make_guesses(x, K, rng, draft)
        draft_rows = None if one_hot else as_tuples(p_draft)
        target_rows = as_tuples(target(x + guesses, K + 1))
        probabilities, accepted, rows = outcomes(
            bind_with_settings, tuple(guesses), draft_rows, target_rows)
        # rng draws one box of uniforms, and then the last token: exact/law.py enumerates both
        box = sample(np.array(probabilities), rng)
        return [*accepted[box], sample(rows[box], rng)]

    return one_round


# ---- files of packages

def names_of_file(package: str, path: str, **names):
    """Run an installed file; return the names that it defines.

    The file's imports from its own package are replaced. A name in `names` gets the value given
    there. Every other name gets a Mock, because the code under test does not use it.
    """
    file = importlib.metadata.distribution(package).locate_file(path)
    # triton reads TRITON_INTERPRET when it is imported; a later change has no effect
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise ImportError("need TRITON_INTERPRET=1 before triton is imported")
    os.environ["TRITON_INTERPRET"] = "1"
    import triton
    import triton.language as tl

    # a Mock has every attribute, so `from package.module import anything` succeeds
    stand_in = mock.Mock(triton=triton, tl=tl, **names)

    def import_(name, *args):
        is_own = name.split(".")[0] == package
        return stand_in if is_own else builtins.__import__(name, *args)

    # an `import` statement calls the function __import__ of the builtins that the file sees
    own_builtins = {**vars(builtins), "__import__": import_}
    scope = {"__name__": path, "__builtins__": own_builtins}
    text = Path(str(file)).read_text(encoding="utf-8")
    exec(compile(text, str(file), "exec"), scope)
    return scope


def tensor(values, dtype=np.float32):
    """Return the values as a tensor."""
    import torch

    return torch.tensor(np.array(values, dtype))


# ---- SGLang: the kernel gets its random numbers as arguments

@cache
def load_sglang():
    """Return the names that SGLang's file defines."""
    return names_of_file("sglang", "sglang/kernels/ops/speculative/reject_sampling.py")


def sglang_kernel(guesses, p_draft, p_target, block_verification=False):
    """Return SGLang's kernel, which draws the last token by inversion from a uniform `last`."""
    verify = load_sglang()["chain_speculative_sampling_triton"]
    k = len(guesses)

    def ids_at(uniforms, last=0.5):
        ids = tensor([-1] * (k + 1), np.int32)
        n_accepted = tensor([0], np.int32)
        positions = tensor([range(k + 1)], np.int64)
        verify(
            # the kernel writes into these three
            predicts=ids,
            accept_index=positions.clone(),
            accept_token_num=n_accepted,
            # and reads these; column 0 of the candidates is the token before the guesses
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

    def row_at(uniforms):
        # the length of each token's part of [0, 1), in which `last` draws this token
        width_of = widths(lambda last: ids_at(uniforms, last)[-1])
        n_vocab = len(p_target[0])
        return np.array([width_of.get(token, 0) for token in range(n_vocab)])

    return Kernel(ids_at, row_at)


# ---- vLLM, v1/sample: the kernels rejection_random_sample and sample_recovered_tokens

# vLLM's file starts a kernel in two steps: a function `dispatch` gets the tensors, and returns
# the grid and the constants of the call; vLLM's launcher then calls the kernel with the tensors
# by position. The launcher below replaces it, and passes the tensors by name: the kernel's
# parameter `x_ptr` gets the argument `x` of dispatch.

def launcher(kernel, warmup_inputs):
    """Return a decorator of `dispatch`, which makes it a function that starts the kernel.

    vLLM's file also passes `warmup_inputs`, which only vLLM's launcher needs.
    """
    def decorate(dispatch):
        def launch(*args, **kwargs):
            arguments = inspect.signature(dispatch).bind(*args, **kwargs).arguments
            grid, constants = dispatch(**arguments)
            # the kernel's parameters that are not constants are tensors
            parameters = inspect.signature(kernel.fn).parameters
            names = parameters.keys() - constants.keys()
            tensors = {name: arguments[name.removesuffix("_ptr")] for name in names}
            kernel[grid](**tensors, **constants)

        return launch

    return decorate


@cache
def load_vllm_sample():
    """Return the names that vLLM's file for its first model runner defines."""
    return names_of_file(
        "vllm", "vllm/v1/sample/rejection_sampler.py",
        triton_kernel_dispatcher_with_warmup=launcher)


def vllm_sample(guesses, p_draft, p_target):
    """Return vLLM's kernels, which draw a replacement by a race of exponentials.

    The bonus token is an argument: in vLLM a different function has drawn it before. Here it is
    a number outside the vocabulary, which shows that all guesses were accepted.
    """
    import torch

    rejection_sample = load_vllm_sample()["rejection_sample"]
    k = len(guesses)
    n_vocab = len(p_target[0])
    bonus = n_vocab  # the tokens are 0 .. n_vocab - 1
    equal = (1.0,) * n_vocab  # the speeds 1 / E of a race in which the largest weight wins
    settings = SimpleNamespace(all_greedy=False, all_random=True, temperature=torch.ones(1),
                               generators={})

    def ids_at(uniforms, speeds=equal):
        numbers = tensor(uniforms, np.float64)
        exponentials = 1 / tensor([speeds])  # infinite for speed 0
        # the file calls torch.rand for the uniforms, and Tensor.exponential_ for the race
        with (mock.patch.object(torch, "rand", lambda *size, **kind: numbers),
              mock.patch.object(torch.Tensor, "exponential_", lambda E: E.copy_(exponentials))):
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

    def row_at(uniforms):
        if ids_at(uniforms)[-1] == bonus:
            return np.array(p_target[-1])
        # the speeds decide the last token alone; the accepted guesses depend on the uniforms
        return race_distribution(lambda speeds: ids_at(uniforms, speeds)[-1], n_vocab)

    return Kernel(ids_at, row_at)


# ---- vLLM, v1/worker/gpu: the kernel computes random numbers as hashes of seed and position

@cache
def load_vllm_gpu():
    """Return the names that the file defines, and a namespace `noise` with two attributes.

    uniforms    set by the caller before a run: the numbers used instead of hashes
    logits      set by a run: the logits of the last token's distribution

    vLLM's gumbel_block_argmax would add Gumbel noise to these logits and return the best token.
    Its replacement stores them, and adds no noise. Triton's interpreter has no log1p, so log1p
    is replaced too.
    """
    noise = SimpleNamespace(uniforms=(), logits=None)

    # the replacements read `tl`, which is assigned below, before a kernel calls them
    def uniform(seed, position, includes_zero):
        return tl.full((), noise.uniforms[int(position)], tl.float32)

    def argmax(logits, *args, **kwargs):
        noise.logits = logits.handle.data  # the NumPy array of the interpreter's tensor
        return tl.max(logits, axis=0, return_indices=True)

    # spec_step_seed is replaced by a function that changes no seed, because `uniform` reads no
    # seed
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
    request = tensor([0], np.int32)  # the number of the only request
    candidates = tensor([-1, *guesses], np.int64)  # -1 is the token before the guesses

    def ids_at(uniforms):
        noise.uniforms = (*uniforms, 0.5)  # position k has no guess: its number tests nothing
        ids, n_ids = scope["rejection_sample"](
            target_logits=tensor(p_target).log(),
            draft_logits=None if p_draft is None else tensor([p_draft]).log(),
            draft_sampled=candidates,
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
        # a block of the kernel is longer than the vocabulary
        n_vocab = len(p_target[0])
        weights = np.exp(noise.logits[:n_vocab].astype(np.float64))
        return weights / weights.sum()

    return Kernel(ids_at, row_at)
