"""Write trained PyTorch models as model folders, and the heads into the target's folder."""
import json
import shutil

import numpy as np

from lib.checkpoints.huggingface import THEIR_SIZES, config_json
from lib.checkpoints.weights import write_arrays
from models.training import bpe
from variants.shared.heads import fingerprint


def to_arrays(weights):  # {name: tensor} -> {name: array}
    """Return weights as arrays in the precision on disk."""
    return {name: tensor.detach().cpu().numpy().astype(np.float16)
            for name, tensor in weights.items()}


def export(gpt2, work, folder):
    """Write one model folder, with the vocabulary in `work`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in bpe.BPE_FILES:
        shutil.copy(work / name, folder)
    weights = dict(gpt2.transformer.named_parameters(prefix="transformer"))
    write_arrays(folder / "model.safetensors", to_arrays(weights), {"format": "pt"})
    hparams = {ours: getattr(gpt2.config, theirs) for ours, theirs in THEIR_SIZES.items()}
    ends = [hparams["n_vocab"] - 1]  # the last id: bpe.train_bpe
    # float32, in which engines compute; the weights are stored in float16.
    config = config_json(hparams, ends, np.dtype(np.float32))
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def medusa_weights(markov):
    """Return the weights of heads and table by name, as medusa.py and markov.py read them."""
    heads = markov.heads
    return {"medusa/w": heads.w, "medusa/b": heads.b, "medusa/a": heads.a,
            "markov/w1": markov.w1, "markov/w2": markov.w2}


def eagle_weights(head):
    """Return the weights of EAGLE's head, named as lib/checkpoints/weights.py names them."""
    weights = {}
    for name, weight in head.named_parameters():
        if not weight.requires_grad:  # a weight of the target, which is frozen
            continue
        # h.0.mlp.c_fc.bias becomes h0/mlp/c_fc/b.
        *path, kind = name.replace("h.", "h").split(".")
        last = "w"
        if kind == "bias":
            last = "b"
        elif weight.ndim == 1:  # the gain of a layer norm
            last = "g"
        weights["/".join(["eagle", *path, last])] = weight
    return weights


def export_heads(gains, arrays, folder):
    """Write heads.safetensors, whose metadata name the target by the gains of its last norm."""
    write_arrays(folder / "heads.safetensors", arrays,
                 {"target": fingerprint(gains.detach().numpy())})
