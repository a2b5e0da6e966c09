"""From trained PyTorch models to model folders, and back: `export`, `read_model`.

OpenAI's layout first, then our own conversion. The TensorFlow checkpoint is written for the sake of
the path: the bundled pair is converted by the same code that reads OpenAI's files
(lib.checkpoints.openai.convert). Layout: src/model.py of github.com/openai/gpt-2.
"""
import json
import os
import shutil

import numpy as np
import torch
from safetensors.numpy import save

from lib.checkpoints.openai import CHECKPOINT, convert
from lib.checkpoints.weights import flatten
from models.training.torch_gpt2 import TorchGPT2
from utils import load_encoder_hparams_and_params
from variants.eagle_head import fingerprint

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


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


def write_checkpoint(named, folder):
    """model.ckpt.* and checkpoint, as TensorFlow 1's Saver writes them."""
    import tensorflow as tf  # seconds to import, and only this stage needs it

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, array in named.items():
            variable = tf.compat.v1.get_variable(name, array.shape, use_resource=False)
            value = tf.compat.v1.placeholder(tf.float32, array.shape)
            session.run(tf.compat.v1.assign(variable, value), {value: array})
        tf.compat.v1.train.Saver().save(session, os.path.join(folder, "model.ckpt"))


def export(gpt2, bpe_folder, folder):
    """Write one model folder: OpenAI's files, then params.npy from them; the checkpoint goes."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for name in ("encoder.json", "vocab.bpe"):
        shutil.copy(os.path.join(bpe_folder, name), folder)
    with open(os.path.join(folder, "hparams.json"), "w") as f:
        json.dump(gpt2.hparams, f)
        f.write("\n")
    write_checkpoint(variables(gpt2), folder)
    convert(folder, np.float16)
    for name in CHECKPOINT:
        os.remove(os.path.join(folder, name))


def export_heads(heads, folder, table=None):
    """medusa.npz: w, a [n_heads, n_embd, n_embd], applied as h @ w[k], and b [n_heads, n_embd].

    With a table also w1 [n_vocab, rank] and w2 [rank, n_vocab]: variants/markov.py.
    """
    learned = {name: getattr(heads, name) for name in "wba"}
    if table:
        learned |= {"w1": table.w1, "w2": table.w2}
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in learned.items()}
    np.savez(os.path.join(folder, "medusa.npz"),
             **{name: array.astype(np.float16) for name, array in arrays.items()})


def export_eagle(eagle, folder):
    """eagle.safetensors: the weights that variants/eagle_head.py reads, and whose head they are."""
    named = {name.removeprefix("model/"): tensor for name, tensor in tensors(eagle).items()}
    wte, _ = named.pop("wte"), named.pop("wpe")  # the target's
    for name in ("ln_token", "ln_state"):
        layer = getattr(eagle, name)
        named |= {f"{name}/g": layer.weight, f"{name}/b": layer.bias}
    named |= {"fc/w": eagle.fc.weight.T, "fc/b": eagle.fc.bias}
    halves = {name: np.ascontiguousarray(tensor.detach().cpu().squeeze(0), np.float16)
              for name, tensor in named.items()}
    metadata = {"target": fingerprint(wte.detach().cpu().numpy())}
    with open(os.path.join(folder, "eagle.safetensors"), "wb") as file:
        file.write(save(halves, metadata))


def install(made, folder):
    """Put a finished model folder's files into their place, one rename each."""
    os.makedirs(folder, exist_ok=True)
    for name in sorted(os.listdir(made)):
        shutil.copy(os.path.join(made, name), os.path.join(folder, name + ".part"))
        os.replace(os.path.join(folder, name + ".part"), os.path.join(folder, name))
