"""Train byte-level BPE of GPT-2's kind on a text, and encode the text as ids.

Reference: Radford et al. (2019) section 2.2.
"""
import json
import os
import re

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

END = "<|endoftext|>"


def new_tokenizer(**tables):
    """Return a tokenizer with GPT-2's split pattern."""
    tokenizer = Tokenizer(models.BPE(**tables))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def train_bpe(text, n_vocab):
    """Return {symbol: id} and the merges: 256 bytes, n_vocab - 257 merges, END as the last id."""
    tokenizer = new_tokenizer()
    trainer = trainers.BpeTrainer(vocab_size=n_vocab - 1, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(text.split("\n"), trainer)
    made = json.loads(tokenizer.to_str())["model"]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in made["merges"]]
    if len(made["vocab"]) != n_vocab - 1:
        raise ValueError(f"need text enough for {n_vocab - 1} entries, got {len(made['vocab'])}")
    return {**made["vocab"], END: n_vocab - 1}, merges


def write_bpe(folder, vocab, merges):
    """Write vocab.json and merges.txt, as transformers does."""
    with open(os.path.join(folder, "vocab.json"), "w", encoding="utf-8") as f:
        json.dump(vocab, f)
    with open(os.path.join(folder, "merges.txt"), "w", encoding="utf-8") as f:
        f.write("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))


def read_bpe(folder):
    """Return what `write_bpe` wrote."""
    with open(os.path.join(folder, "vocab.json"), encoding="utf-8") as f:
        vocab = json.load(f)
    with open(os.path.join(folder, "merges.txt"), encoding="utf-8") as f:
        return vocab, [tuple(line.split(" ")) for line in f.read().split("\n")[1:] if line]


def encode_tales(text, vocab, merges):  # -> uint16 [n_ids]
    """Return all tales as ids, END after each; a tale begins after two blank lines."""
    tokenizer = new_tokenizer(vocab={k: v for k, v in vocab.items() if k != END}, merges=merges)
    tales = [tale.strip() for tale in re.split(r"\n\n\n+", text) if tale.strip()]
    pieces = [encoding.ids + [vocab[END]] for encoding in tokenizer.encode_batch(tales)]
    return np.concatenate([np.array(piece, np.uint16) for piece in pieces])


def prepare(corpus, work, n_vocab, known=None):
    """Write the vocabulary, train.npy and valid.npy into `work`, unless they exist.

    The vocabulary is learned from the training text, or is that of the model folder `known`.
    """
    if os.path.exists(os.path.join(work, "valid.npy")):
        return
    texts = {}
    for split in ("train", "valid"):
        with open(os.path.join(corpus, split + ".txt"), encoding="utf-8") as f:
            texts[split] = f.read()
    vocab, merges = read_bpe(known) if known else train_bpe(texts["train"], n_vocab)
    write_bpe(work, vocab, merges)
    for split in ("train", "valid"):
        ids = encode_tales(texts[split], vocab, merges)
        np.save(os.path.join(work, split + ".npy"), ids)
        print(f"{split}: {len(ids)} ids, {len(texts[split]) / len(ids):.3f} characters per id",
              flush=True)
