"""Train byte-level BPE of GPT-2's kind on a text, and encode the text as ids.

Reference: Radford et al. (2019) section 2.2.
"""
import json
import re

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from lib.checkpoints.files import atomic

END = "<|endoftext|>"
BPE_FILES = ("vocab.json", "merges.txt")


def new_tokenizer(model):
    """Return a tokenizer with GPT-2's split pattern."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def train_bpe(text, n_vocab, folder):
    """Write BPE_FILES: 256 bytes, n_vocab - 257 merges, and END as the last id."""
    tokenizer = new_tokenizer(models.BPE())
    # The library would put a special token first, so it trains without END.
    trainer = trainers.BpeTrainer(vocab_size=n_vocab - 1, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(text.split("\n"), trainer)
    vocab = tokenizer.get_vocab()
    if len(vocab) != n_vocab - 1:
        raise ValueError(f"need enough text for {n_vocab - 1} entries, got {len(vocab)}")
    tokenizer.model.save(str(folder))
    (folder / "vocab.json").write_text(json.dumps(vocab | {END: n_vocab - 1}), encoding="utf-8")


def encode_tales(text, folder):  # -> uint16 [n_ids]
    """Return the ids of all tales, END after each; two blank lines or more separate tales."""
    vocab_path, merges_path = [str(folder / name) for name in BPE_FILES]
    tokenizer = new_tokenizer(models.BPE.from_file(vocab_path, merges_path))
    tales = [tale.strip() for tale in re.split(r"\n\n\n+", text) if tale.strip()]
    end = [tokenizer.token_to_id(END)]
    # uint16 is enough for a vocabulary of fewer than 65,536 tokens.
    ids_of_tales = [np.array(encoding.ids + end, np.uint16)
                    for encoding in tokenizer.encode_batch(tales)]
    return np.concatenate(ids_of_tales)


def prepare(corpus, work, n_vocab):
    """Write vocabulary, train.npy and valid.npy into `work`, unless they exist."""
    if (work / "valid.npy").exists():  # it is written last
        return
    texts = {split: (corpus / f"{split}.txt").read_text(encoding="utf-8")
             for split in ("train", "valid")}
    work.mkdir(parents=True, exist_ok=True)
    train_bpe(texts["train"], n_vocab, work)
    for split, text in texts.items():
        ids = encode_tales(text, work)
        with atomic(work / f"{split}.npy") as file:  # whole, or an interrupted run starts anew
            np.save(file, ids)
        print(f"{split}: {len(ids)} ids, {len(text) / len(ids):.3f} characters per id",
              flush=True)
