"""Write trained PyTorch models as model folders, and the heads into the target's folder."""
import json
import shutil

import numpy as np

from lib.checkpoints import tensors
from lib.checkpoints.huggingface import THEIR_SIZES, config_json
from models.training import bpe
from variants.shared.heads import fingerprint


def to_arrays(named):
    """Return tensors as arrays in the precision on disk."""
    return {name: tensor.detach().cpu().numpy().astype(np.float16)
            for name, tensor in named.items()}


def export(gpt2, work, folder):
    """Write one model folder; the vocabulary is the one in `work`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in bpe.FILES:
        shutil.copy(work / name, folder)
    named = dict(gpt2.transformer.named_parameters(prefix="transformer"))
    tensors.write_arrays(folder / "model.safetensors", to_arrays(named), {"format": "pt"})
    hparams = {ours: getattr(gpt2.config, theirs) for ours, theirs in THEIR_SIZES.items()}
    settings = config_json(hparams, hparams["n_vocab"] - 1, np.dtype(np.float32))
    (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def medusa_weights(markov):
    """Return the heads' and the table's weights by name.

    medusa/w and a [n_heads, n_embd, n_embd] are applied as h @ w[k]; b is [n_heads, n_embd].
    markov/w1 is [n_vocab, rank], w2 [rank, n_vocab].
    """
    return {**{f"medusa/{key}": getattr(markov.heads, key) for key in "wba"},
            "markov/w1": markov.w1, "markov/w2": markov.w2}


def eagle_weights(head):
    """Return the weights of EAGLE's head, named as lib/checkpoints/weights.py names them."""
    named = {}
    for name, weight in head.named_parameters():
        *path, kind = name.replace("h.", "h").split(".")
        end = "b" if kind == "bias" else "w" if weight.ndim == 2 else "g"  # g: of a layer norm
        if weight.requires_grad:  # not the target's
            named["/".join(["eagle", *path, end])] = weight
    return named


def export_heads(target, named, folder):
    """Write heads.safetensors, whose metadata name the target."""
    wte = target.transformer.wte.weight.detach().numpy()
    tensors.write_arrays(folder / "heads.safetensors", to_arrays(named),
                       {"target": fingerprint(wte)})
