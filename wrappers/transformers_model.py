"""Use any causal language model that transformers loads (Llama, Qwen, ..) as a model here.

Adds to gpt2.py: a model whose forward pass is PyTorch's. No decoder changes, because a decoder
only calls `model(ids, n_last)`:

    draft = TransformersModel("Qwen/Qwen3-0.6B", dtype="bfloat16")
    target = TransformersModel("Qwen/Qwen3-4B", dtype="bfloat16")

    cache      transformers' keys and values of the ids that were read last; a memo (cache.py)
    crop       transformers' word for going back: drop the last keys and values
    window     a layer with a sliding window needs the last positions only. A crop to length n
               drops all positions before its window, so a later crop cannot go below n
    stateful   layers that fold the text into one state (Mamba, linear attention) cannot go back

PyTorch and transformers are imported when a model is made: requirements/peers.txt installs
them.
"""

import contextlib
import inspect
import math
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cache import CachedModel
from lib.backend.arrays import in_one_line
from lib.checkpoints.files import read_json
from lib.checkpoints.hub import INSTALL, model_folder
from lib.checkpoints.huggingface import folder_model_type
from lib.checkpoints.weights import LARGEST_SIZES
from variants.shared.branches import Branches, texts_of_rows
from wrappers.transformers_tree import takes_mask, tree_rows

DTYPES = ("auto", "bfloat16", "float32", "float64")
# A forward pass takes its cache under the first name since transformers 5.24, under the second
# before.
CACHE_NAMES = ("cache", "past_key_values")


class TransformersModel:
    """A model of transformers as a function of the whole sequence, which computes what is new.

    Parameters
    ----------
    model_or_folder : AutoModelForCausalLM, path or str
        A model in memory, its folder, or its name on the hub (lib/checkpoints/hub.py). Code in
        the folder is never run, and weights are read from safetensors files only.
    device : str or torch.device, optional
        Without it a model in memory stays where it is; a loaded model goes to CUDA if PyTorch
        has it.
    dtype : "auto", "bfloat16", "float32" or "float64", optional
        "auto", the default: the dtype of the files, or of the model in memory.

    Raises
    ------
    ValueError
        If there is no such model, a package is missing, or its rows see later tokens.

    Notes
    -----
    A model in memory is not copied. It is set to evaluation mode, and converted if device or
    dtype is given. Calls take turns. A copied or pickled model has an empty cache.
    """

    def __init__(self, model_or_folder, device=None, dtype=None):
        torch = import_torch(model_or_folder)
        self.model = model_ready_to_run(model_or_folder, device, dtype)
        self.library = f"PyTorch {torch.__version__}"  # which computes the passes
        # A model that also reads images has its text model's sizes in a part of its config.
        config = self.model.config.get_text_config(decoder=True)
        self.n_ctx = context_length(config)
        self.n_vocab = config.vocab_size
        # Families differ in the arguments of their forward pass.
        parameters = inspect.signature(self.model.forward).parameters
        self.can_cut_rows = "logits_to_keep" in parameters
        self.cache_name = next((name for name in CACHE_NAMES if name in parameters), None)
        # An empty cache tells already whether all of its layers can go back.
        self.has_cache = self.cache_name is not None and self.empty_cache().is_croppable
        self.forget()
        self.lock = threading.Lock()
        tolerance = row_tolerance(self.model.dtype)
        check_causal(self, tolerance)
        self.takes_mask = takes_mask(self, tolerance)
        if not self.has_cache:
            print(f"{config.model_type}: transformers' cache of this model cannot go back, so "
                  "every pass reads the whole text again. The results are right; the time per "
                  "pass grows with the text.", file=sys.stderr)

    def __reduce__(self):  # how to copy and pickle a model: its lock cannot be copied
        return type(self), (self.model,), {"n_vocab": self.n_vocab}

    def fresh(self):
        """Return a model over the same weights that has read nothing."""
        # Without __init__, which would check the weights again. Lock and cache are new.
        made = object.__new__(type(self))
        vars(made).update(vars(self), lock=threading.Lock())
        made.forget()
        return made

    def __call__(self, ids: Sequence[int] | Branches, n_last: int = 1) -> np.ndarray:
        """Return logits [n_last, n_vocab]; the last row is for the token after `ids`.

        The row before it is for the token after `ids[:-1]`, and so on. For a text with a tree
        (x + tree) the rows are those after x and after the path to each node. ValueError if not
        1 <= n_last <= len(ids) <= n_ctx, or an id is outside the vocabulary.
        """
        if not isinstance(ids, Branches):
            with self.lock:
                return self.read(list(ids), n_last)
        if self.takes_mask:
            with self.lock:
                return tree_rows(self, ids.x, ids.tree, n_last)
        # Without a mask for trees, each row is the last row of a separate text.
        return np.concatenate([self(text) for text in texts_of_rows(ids, n_last)])

    n_reusable = CachedModel.n_reusable  # it uses n_ctx and n_vocab only

    def read(self, ids, n_last):  # -> [n_last, n_vocab]
        """Run one pass over the tokens that are not in the cache."""
        n_past = self.n_reusable(self.ids, ids, n_last)
        try:
            self.go_back(n_past)  # cuts self.ids too
            rows = self.forward(ids[len(self.ids) :], n_last)
        except BaseException:
            # After Ctrl-C in a pass, only some layers have the keys and values of new tokens.
            self.forget()
            raise
        if self.has_cache:
            self.ids = ids
        return rows

    def forward(self, tokens, n_last, **settings):  # [n_new] -> [n_last, n_vocab]
        """Run transformers' forward pass; return the last rows on the host."""
        import torch

        if self.can_cut_rows:
            settings["logits_to_keep"] = n_last
        # Without a cache, `tokens` is the whole text.
        if self.has_cache:
            settings[self.cache_name] = self.cache
        with torch.inference_mode():
            # transformers reads batches, [n_texts, n_new]; this batch has a single text.
            batch = torch.tensor([tokens], device=self.model.device)
            output = self.model(batch, use_cache=self.has_cache, **settings)
            logits = output.logits[0, -n_last:, : self.n_vocab]
            if logits.dtype.itemsize < 4:  # NumPy has no bfloat16
                logits = logits.float()
            return logits.cpu().numpy()

    # ---- the cache

    def forget(self):
        """Start an empty cache."""
        self.cache = self.empty_cache() if self.has_cache else None
        self.ids = []  # the tokens whose keys and values are in the cache
        self.n_start = 0  # the cache can go back to this length, and no further

    def empty_cache(self):
        """Return a cache that holds nothing, and will keep enough to go back."""
        from transformers import DynamicCache

        cache = DynamicCache(config=self.model.config)
        # From now on a layer with a window drops nothing until a crop.
        cache.activate_past_recording()
        return cache

    def go_back(self, n_past):
        """Cut the cache to its first n_past ids; start an empty one if it cannot go back."""
        n_back = len(self.ids) - n_past  # ids in the cache that are not in the new text
        if n_back == 0:
            return
        if n_past == 0 or n_past < self.n_start:
            self.forget()
            return
        self.cache.crop(-n_back)  # negative: the number of ids to drop
        self.ids = self.ids[:n_past]
        # Subtle: the crop has kept only the window that ends here, so a later crop may go back
        # to n_past ids again, but not to fewer.
        if any(self.cache.is_sliding):
            self.n_start = n_past


# ---- checks

def row_tolerance(dtype):
    """Return the relative difference of two rows that rounding may cause: half the digits."""
    import torch

    # Parts of a float64 model compute in float32. The root of eps, 10 ** -n, has n / 2 digits.
    return math.sqrt(max(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps))


def check_causal(model, tolerance):
    """Raise ValueError if a row changes with the tokens after it, as in encoders (BERT)."""
    # The first row of a causal model is the same, whether a token follows or not.
    with transformers_errors(f"run {type(model.model).__name__} {model.model.name_or_path}"):
        alone = model.fresh()([0], 1)[0]
        followed = model.fresh()([0, model.n_vocab // 2], 2)[0]
    if np.abs(alone - followed).max() > tolerance * np.abs(alone).max():
        raise ValueError(f"need a causal model, whose rows do not depend on later tokens, got "
                         f"{type(model.model).__name__}")


def check_decoder(config, name):
    """Raise ValueError if the model consists of an encoder and a decoder."""
    if config.is_encoder_decoder:
        raise ValueError(f"need a model that continues a text, got {name}, whose decoder waits "
                         f"for an encoder's text (model_type {config.model_type})")


def context_length(config):
    """Return the number of positions of a model; math.inf if its configuration has no limit."""
    # Families use two names. A name that is missing or None states no limit.
    sizes = [getattr(config, name, None) for name in ("max_position_embeddings", "max_seq_len")]
    rope = getattr(config, "rope_parameters", None) or {}
    # Beyond the original length "longrope" changes all rows, so rows from a cache are wrong.
    if rope.get("rope_type") == "longrope":
        sizes.append(rope["original_max_position_embeddings"])
    return min([size for size in sizes if size], default=math.inf)


def dtype_name(dtype):
    """Return the name of a dtype of NumPy, PyTorch or --dtype; ValueError if not in DTYPES."""
    if dtype is None:
        return "auto"
    # A class has a name: str(np.float32) is "<class 'numpy.float32'>".
    name = getattr(dtype, "__name__", str(dtype)).removeprefix("torch.")
    if name not in DTYPES:
        raise ValueError(f"need dtype {', '.join(DTYPES[:-1])} or {DTYPES[-1]}, got {dtype!r}")
    return name


# ---- loading

def model_ready_to_run(model_or_folder, device, dtype):
    """Return a model in evaluation mode, loaded if need be, on its device and in its dtype."""
    import torch

    dtype = dtype_name(dtype)
    if isinstance(model_or_folder, str | os.PathLike):
        folder = model_folder(os.fspath(model_or_folder))
        model = loaded_model(str(folder), dtype)
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    else:
        model = model_or_folder
        if not isinstance(model, torch.nn.Module) or not hasattr(model, "config"):
            raise ValueError("need a model of transformers, a folder or a name, "
                             f"got {model!r:.80}")
        check_decoder(model.config, type(model).__name__)
        if dtype != "auto":
            model = model.to(getattr(torch, dtype))
    # A quantized model is on its device already, and refuses to be moved.
    is_quantized = getattr(model, "hf_quantizer", None) is not None
    if device is not None and not is_quantized:
        model = model.to(device)
    # The fast products of mixtures of experts do not exist in float64.
    if model.dtype == torch.float64:
        model.set_experts_implementation("eager")
    return model.eval()


def import_torch(model_or_folder):
    """Return torch; ValueError, with the command, unless it and transformers are installed."""
    try:
        import torch
        import transformers  # noqa: F401
    except ImportError as error:
        what = repr(str(model_or_folder))
        if model_type := folder_model_type(model_or_folder):
            what += f" (model_type {model_type})"
        raise ValueError(f"{what} needs PyTorch and transformers ({error}): "
                         f"{INSTALL}") from None
    return torch


@contextlib.contextmanager
def transformers_errors(action):
    """Raise what transformers raises as a ValueError of one line; it was to do `action`."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except ImportError as error:
        raise ValueError(f"transformers needs one more package to {action}: "
                         f"{in_one_line(error)}") from None
    # The values of a folder reach many classes, each with errors of its own.
    except Exception as error:
        raise ValueError(f"transformers cannot {action}: {in_one_line(error)}") from None


def loaded_model(name, dtype):
    """Return the model of a folder; ValueError in one sentence if it cannot be loaded."""
    from transformers import AutoModelForCausalLM

    config = read_config(name)
    check_decoder(config, name)
    with transformers_errors(f"load {name} (model_type {config.model_type})"):
        model, report = AutoModelForCausalLM.from_pretrained(
            name, config=config, dtype=dtype, use_safetensors=True, trust_remote_code=False,
            output_loading_info=True)
    # transformers fills in random weights for missing ones, and prints a warning only.
    if missing := sorted(report["missing_keys"]):
        raise ValueError(f"need all weights of a {config.model_type} model in {name}, got none "
                         f"for {missing[0]} ({len(missing)} missing)")
    return model


def read_config(name):
    """Return the configuration of a model; ValueError if transformers cannot read it."""
    from transformers import CONFIG_MAPPING, AutoConfig

    path = Path(name, "config.json")
    settings = read_json(path) if path.is_file() else {}
    # transformers would check this too, but its message advises to allow the folder's code.
    model_type = settings.get("model_type")
    if not (isinstance(model_type, str) and model_type in CONFIG_MAPPING):
        if "auto_map" in settings:
            raise ValueError(f"{name} (model_type {model_type}) has Python code for its "
                             "model, but code in a model folder is never run")
        raise ValueError(f"transformers does not know the model_type {model_type!r:.80} in "
                         f"{path}: it may need a newer version")
    with transformers_errors(f"read {path}"):
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        n_layer = config.get_text_config(decoder=True).num_hidden_layers
    # transformers makes all layers before it looks for the first weight.
    if not 1 <= n_layer <= LARGEST_SIZES["n_layer"]:
        raise ValueError(f"need 1 to {LARGEST_SIZES['n_layer']} layers in {path}, got "
                         f"{str(n_layer)[:80]}")
    return config
