"""Write trained PyTorch models as model folders, and read a folder back: `export`, `read_model`."""
import json
import shutil

import numpy as np
import torch

from lib.checkpoints import tensors
from lib.checkpoints.weights import build_params, flatten
from models.training.torch_gpt2 import TorchGPT2
from tools.export_hf import config, write_weights
from utils import load_encoder_hparams_and_params
from variants.eagle_head import fingerprint

DTYPE = np.dtype(np.float16)  # on disk


def weights(module):
    """Return {name: view} of a GPT-2 or of EAGLE's head, named as lib/checkpoints/weights.py does.

    GPT-2's projections are [n_in, n_out], PyTorch's [n_out, n_in].
    """
    named = {}
    for name, parameter in module.named_parameters():
        path, kind = name.replace("blocks.", "h").replace(".", "/").rsplit("/", 1)
        if path in ("wte", "wpe"):
            named[path] = parameter
        elif kind == "bias":
            named[f"{path}/b"] = parameter
        elif parameter.ndim == 1:  # of a layer norm
            named[f"{path}/g"] = parameter
        else:
            named[f"{path}/w"] = parameter.T
    return named


def to_array(tensor):
    """Return a tensor as an array in the precision on disk."""
    return tensor.detach().cpu().numpy().astype(DTYPE)


def export(gpt2, work, folder):
    """Write one model folder; the vocabulary is the one in `work`."""
    named = weights(gpt2)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(work / name, folder)
    params = build_params(gpt2.hparams, lambda name, *shape: to_array(named[name]))
    write_weights(folder, params, DTYPE)
    settings = config(gpt2.hparams, gpt2.hparams["n_vocab"] - 1, np.dtype(np.float32))
    (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n")


def export_heads(target, learned, folder):
    """Write heads.safetensors: medusa/, markov/ and eagle/, as far as they are trained.

    medusa/w and a [n_heads, n_embd, n_embd] are applied as h @ w[k]; b is [n_heads, n_embd].
    markov/w1 is [n_vocab, rank], w2 [rank, n_vocab]. The metadata name the target.
    """
    named = {}
    for stage, name, keys in (("heads", "medusa", "wba"), ("markov", "markov", ("w1", "w2"))):
        if stage in learned:
            named |= {f"{name}/{key}": getattr(learned[stage], key) for key in keys}
    if "eagle" in learned:
        named |= {f"eagle/{name}": tensor for name, tensor in weights(learned["eagle"]).items()}
    arrays = {name: to_array(tensor) for name, tensor in named.items()}
    tensors.write_file(folder / "heads.safetensors", arrays,
                       {"target": fingerprint(target.wte.weight.detach().numpy())})


def read_model(folder):
    """Return a model folder as PyTorch's GPT-2, to train it further."""
    _, hparams, params = load_encoder_hparams_and_params(folder.name, folder.parent)
    gpt2, found = TorchGPT2(**hparams), dict(flatten(params))
    for name, view in weights(gpt2).items():
        view.data.copy_(torch.from_numpy(np.array(found[name])))
    return gpt2
