"""Read a tokenizer of transformers as ChatTokens (wrappers/chat_tokens.py).

A folder with tokenizer.json is read without transformers. This file reads a tokenizer in
memory, or a folder with other files, such as tokenizer.model.
"""

import os
from pathlib import Path

from lib.checkpoints.hub import model_folder
from lib.checkpoints.vocabulary import ends_of_folder
from wrappers.chat_tokens import ChatTokens, default_template, tokens_of_folder
from wrappers.transformers_model import import_torch, transformers_errors


def transformers_tokenizer(tokenizer_or_folder):
    """Return the ChatTokens of a fast tokenizer in memory, a folder, or a name on the hub."""
    tokenizer = tokenizer_or_folder
    ends = []  # a tokenizer in memory has no generation_config.json
    if isinstance(tokenizer, str | os.PathLike):
        folder = Path(model_folder(os.fspath(tokenizer)))
        if (folder / "tokenizer.json").is_file():
            return tokens_of_folder(folder)
        import_torch(folder)
        tokenizer = loaded_tokenizer(str(folder))
        ends = ends_of_folder(folder)
    # Only the file of a fast tokenizer states how bytes are written in symbols.
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ValueError("need a fast tokenizer (tokenizer.json), "
                         f"got {type(tokenizer).__name__}")
    return ChatTokens(backend, tokenizer.special_tokens_map, ends,
                      default_template(tokenizer.chat_template))


def loaded_tokenizer(name):
    """Return the tokenizer of a folder; ValueError if transformers finds none there."""
    from transformers import AutoTokenizer

    with transformers_errors(f"read a tokenizer in {name} (tokenizer.json, or tokenizer.model "
                             "and the package sentencepiece)"):
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        tokenizer("a", verbose=False)  # reads the settings that loading does not read
    # Without the files, some classes return special tokens and at most one other token.
    if len(tokenizer) <= len(tokenizer.added_tokens_decoder) + 1:
        raise ValueError(f"need a tokenizer in {name} (tokenizer.json), got none")
    return tokenizer
