"""Write trained PyTorch models as model folders, and read them back: `export`, `read_model`.

A folder is as Hugging Face keeps it: config.json, model.safetensors in float16, vocab.json,
merges.txt; heads.safetensors lies beside the target.
"""
import json
import os
import shutil
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file

from lib.checkpoints.tensors import write_file
from lib.checkpoints.weights import build_params, flatten
from models.training.torch_gpt2 import TorchGPT2
from tools.export_hf import config, write_weights
from utils import load_encoder_hparams_and_params
from variants.eagle_head import fingerprint


def tensors(gpt2):
    """Views by OpenAI's names; its projections are [1, n_in, n_out], PyTorch's [n_out, n_in]."""
    named = {"model/wte": gpt2.wte.weight, "model/wpe": gpt2.wpe.weight}

    def norm(name, layer):
        named.update({f"{name}/g": layer.weight, f"{name}/b": layer.bias})

    def linear(name, layer):
        named.update({f"{name}/w": layer.weight.T[None], f"{name}/b": layer.bias})

    for i, block in enumerate(gpt2.blocks):
        norm(f"model/h{i}/ln_1", block.ln_1)
        linear(f"model/h{i}/attn/c_attn", block.c_attn)
        linear(f"model/h{i}/attn/c_proj", block.attn_proj)
        norm(f"model/h{i}/ln_2", block.ln_2)
        linear(f"model/h{i}/mlp/c_fc", block.c_fc)
        linear(f"model/h{i}/mlp/c_proj", block.mlp_proj)
    norm("model/ln_f", gpt2.ln_f)
    return named


def variables(gpt2):
    """OpenAI's names and arrays."""
    return {name: tensor.detach().cpu().float().numpy() for name, tensor in tensors(gpt2).items()}


def read_model(folder):
    """A model folder as PyTorch's GPT-2: the way back, to train on from what was exported."""
    _, hparams, params = load_encoder_hparams_and_params(os.path.basename(folder),
                                                         os.path.dirname(folder))
    gpt2, weights = TorchGPT2(**hparams), dict(flatten(params))
    for name, tensor in tensors(gpt2).items():
        ours = torch.from_numpy(np.array(weights[name.removeprefix("model/")]))
        tensor.data.copy_(ours.reshape(tensor.shape))
    return gpt2


def export(gpt2, bpe_folder, folder):
    """Write one model folder."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for theirs, name in (("encoder.json", "vocab.json"), ("vocab.bpe", "merges.txt")):
        shutil.copy(os.path.join(bpe_folder, theirs), os.path.join(folder, name))
    named = variables(gpt2)
    params = build_params(gpt2.hparams,
                          lambda name, *shape: named[f"model/{name}"].reshape(shape))
    write_weights(Path(folder), params, np.float16)
    with open(os.path.join(folder, "vocab.json"), encoding="utf-8") as f:
        end_of_text = json.load(f)["<|endoftext|>"]
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config(gpt2.hparams, end_of_text, "float32"), f, indent=2)
        f.write("\n")


def add_heads(folder, arrays, metadata=None):
    """Write arrays to heads.safetensors in float16, beside those that are there."""
    path = Path(folder) / "heads.safetensors"
    halves = {name: np.asarray(tensor.detach().cpu(), np.float16)
              for name, tensor in arrays.items()}
    write_file(path, (load_file(path) if path.exists() else {}) | halves, metadata)


def export_heads(heads, folder, table=None):
    """Write w, a [n_heads, n_embd, n_embd], applied as h @ w[k], and b [n_heads, n_embd].

    With a table also w1 [n_vocab, rank] and w2 [rank, n_vocab]: variants/markov.py.
    """
    learned = {f"medusa/{name}": getattr(heads, name) for name in "wba"}
    if table:
        learned |= {"markov/w1": table.w1, "markov/w2": table.w2}
    add_heads(folder, learned)


def export_eagle(eagle, folder):
    """Write the weights that variants/eagle_head.py reads, and for which target they are."""
    named = {name.removeprefix("model/"): tensor for name, tensor in tensors(eagle).items()}
    wte, _ = named.pop("wte"), named.pop("wpe")  # the target's
    for name in ("ln_token", "ln_state"):
        layer = getattr(eagle, name)
        named |= {f"{name}/g": layer.weight, f"{name}/b": layer.bias}
    named |= {"fc/w": eagle.fc.weight.T, "fc/b": eagle.fc.bias}
    add_heads(folder, {f"eagle/{name}": tensor.squeeze(0) for name, tensor in named.items()},
              {"target": fingerprint(wte.detach().cpu().numpy())})


def install(made, folder):
    """Put a finished model folder's files into their place, one rename each."""
    os.makedirs(folder, exist_ok=True)
    for name in sorted(os.listdir(made)):
        shutil.copy(os.path.join(made, name), os.path.join(folder, name + ".part"))
        os.replace(os.path.join(folder, name + ".part"), os.path.join(folder, name))
