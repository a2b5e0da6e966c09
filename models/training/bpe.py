"""Byte-level BPE of GPT-2's kind trained on a text, and the text as ids.

Reference: Radford et al. (2019) section 2.2; the files encoder.json and vocab.bpe are those of
github.com/openai/gpt-2.
"""
import json
import os
import re

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END = "<|endoftext|>"


def new_tokenizer(**tables):
    tokenizer = Tokenizer(models.BPE(**tables))
    # ByteLevel is GPT-2's split pattern
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def train_bpe(text, n_vocab):
    """256 bytes, n_vocab - 257 merges, END as the last id; returns encoder dict and merges."""
    tokenizer = new_tokenizer()
    trainer = trainers.BpeTrainer(vocab_size=n_vocab - 1, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(text.split("\n"), trainer)
    made = json.loads(tokenizer.to_str())["model"]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in made["merges"]]
    if len(made["vocab"]) != n_vocab - 1:
        raise ValueError(f"need text enough for {n_vocab - 1} entries, got {len(made['vocab'])}")
    return {**made["vocab"], END: n_vocab - 1}, merges


def write_bpe(folder, encoder, merges):
    """encoder.json and vocab.bpe as OpenAI ships them."""
    with open(os.path.join(folder, "encoder.json"), "w", encoding="utf-8") as f:
        json.dump(encoder, f)
    with open(os.path.join(folder, "vocab.bpe"), "w", encoding="utf-8") as f:
        f.write("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))


def tales(text):
    """The corpus's tales: each begins after two blank lines."""
    return [tale.strip() for tale in re.split(r"\n\n\n+", text) if tale.strip()]


def encode_tales(text, encoder, merges):  # -> uint16 [n_ids]
    """All tales as ids, END after each."""
    tokenizer = new_tokenizer(vocab={k: v for k, v in encoder.items() if k != END}, merges=merges)
    pieces = []
    for encoding in tokenizer.encode_batch(tales(text)):
        pieces += [np.array(encoding.ids, np.uint16), np.array([encoder[END]], np.uint16)]
    return np.concatenate(pieces)


def read_bpe(folder):
    """What `write_bpe` wrote."""
    with open(os.path.join(folder, "encoder.json"), encoding="utf-8") as f:
        encoder = json.load(f)
    with open(os.path.join(folder, "vocab.bpe"), encoding="utf-8") as f:
        return encoder, [tuple(line.split(" ")) for line in f.read().split("\n")[1:] if line]


def prepare(corpus, work, n_vocab, known=None):
    """Write encoder.json, vocab.bpe, train.npy and valid.npy into `work`, unless they are there.

    The vocabulary is learned from the training text, or is the one in the folder `known`.
    """
    if os.path.exists(os.path.join(work, "valid.npy")):
        return
    texts = {}
    for split in ("train", "valid"):
        with open(os.path.join(corpus, split + ".txt"), encoding="utf-8") as f:
            texts[split] = f.read()
    encoder, merges = read_bpe(known) if known else train_bpe(texts["train"], n_vocab)
    write_bpe(work, encoder, merges)
    for split in ("train", "valid"):
        ids = encode_tales(texts[split], encoder, merges)
        np.save(os.path.join(work, split + ".npy"), ids)
        per_id = len(texts[split]) / len(ids)
        print(f"{split}: {len(ids)} ids, {per_id:.3f} characters an id", flush=True)
