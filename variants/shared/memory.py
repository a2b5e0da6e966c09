"""The file of `--memory`: finished texts that suffix.py copies from.

    line        one text, oldest first: {"n_vocab": 4096, "ids": [17, 4, ...]}
    n_vocab     the size of the vocabulary that the ids are from
    NEWEST      how many tokens the file keeps; older texts are dropped
"""

import json
from pathlib import Path

NEWEST = 2**13  # tokens: as a trie of depth 16 some 20 MB, read in a moment


def read_memory(path, n_vocab):
    """Return the texts in a file, none if there is no file yet.

    ValueError if a line is not such a text, or has a different vocabulary.
    """
    if not Path(path).exists():
        return []
    if not Path(path).is_file():
        raise ValueError(f"need --memory to be a file, got {path}")
    return [ids_of(line, f"line {i} of {path}", n_vocab)
            for i, line in enumerate(Path(path).read_bytes().splitlines(), 1)]


def ids_of(line, where, n_vocab):
    """Return the ids of a line; `where` names it in errors."""
    try:
        text = json.loads(line)
        size, ids = text["n_vocab"], text["ids"]
        good = type(ids) is list and all(type(id) is int and 0 <= id < size for id in ids)
    except (ValueError, TypeError, KeyError, RecursionError):
        good = False
    if not good:
        raise ValueError(f"need a text as --memory keeps it, got {line[:40]!r} in {where}")
    if size != n_vocab:
        raise ValueError(f"need texts with a vocabulary of {n_vocab} tokens, got {size} in {where}")
    return ids


def remember(path, ids, n_vocab):
    """Add a finished text; replace the file as a whole, so that it is never half written."""
    from lib.checkpoints.files import atomic  # a library that decoding does not need

    texts = [*read_memory(path, n_vocab), list(ids)]
    while len(texts) > 1 and sum(map(len, texts)) > NEWEST:
        del texts[0]
    with atomic(Path(path).resolve()) as file:
        for text in texts:
            line = json.dumps({"n_vocab": n_vocab, "ids": [int(token) for token in text]})
            file.write(line.encode() + b"\n")
