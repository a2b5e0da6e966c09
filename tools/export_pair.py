"""From trained PyTorch models to model folders: OpenAI's layout first, then our own conversion.

The TensorFlow checkpoint is written for the sake of the path: the bundled pair is converted by the
same code that reads OpenAI's files (checkpoints.openai.convert). Layout: src/model.py of
github.com/openai/gpt-2.
"""
import json
import os
import shutil

import numpy as np

from checkpoints.openai import CHECKPOINT, convert

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def variables(gpt2):
    """OpenAI's names and arrays; its projections are [1, n_in, n_out], PyTorch's [n_out, n_in]."""
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
    return {name: tensor.detach().cpu().float().numpy() for name, tensor in named.items()}


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


def export_heads(heads, folder):
    """medusa.npz: w, a [n_heads, n_embd, n_embd], applied as h @ w[k], and b [n_heads, n_embd]."""
    arrays = {name: getattr(heads, name).detach().cpu().numpy() for name in "wba"}
    np.savez(os.path.join(folder, "medusa.npz"),
             **{name: array.astype(np.float16) for name, array in arrays.items()})


def install(made, folder):
    """Put a finished model folder's files into their place, one rename each."""
    os.makedirs(folder, exist_ok=True)
    for name in sorted(os.listdir(made)):
        shutil.copy(os.path.join(made, name), os.path.join(folder, name + ".part"))
        os.replace(os.path.join(folder, name + ".part"), os.path.join(folder, name))
