"""Keep the file of `--memory`: finished texts that suffix.py copies from.

Each line is a text, such as {"n_vocab": 4096, "ids": [17, 4, ...]}. The oldest comes first.
n_vocab is the number of tokens in the vocabulary.
"""

import json
from pathlib import Path

from lib.checkpoints.files import atomic, file_lock

NEWEST = 2**13  # tokens that the file keeps; counting them takes half a second and 40 MB


def read_memory(path, n_vocab):
    """Return the texts in a file, none if there is no file yet; ValueError if it is broken."""
    if not Path(path).exists():
        return []
    try:
        with open(path, "rb") as file:
            texts = [json.loads(line) for line in file]
        # A file for a different vocabulary has no good text.
        good = all(type(token) is int and 0 <= token < n_vocab and text["n_vocab"] == n_vocab
                   for text in texts for token in text["ids"])
    except (ValueError, TypeError, KeyError, RecursionError):
        good = False
    if not good:
        raise ValueError(f"--memory {path} is not a file of texts over a vocabulary of "
                         f"{n_vocab} tokens: choose a different file")
    return [text["ids"] for text in texts]


def add_to_memory(path, ids, n_vocab):
    """Add a finished text to a file; processes that finish together take turns."""
    path = Path(path).resolve()
    with file_lock(f"{path}.lock"):
        texts = [*read_memory(path, n_vocab), list(ids)]
        # The oldest texts are dropped, but the new one stays even if it is longer than NEWEST.
        while len(texts) > 1 and sum(map(len, texts)) > NEWEST:
            del texts[0]
        with atomic(path) as file:
            for text in texts:
                line = json.dumps({"n_vocab": n_vocab, "ids": [int(token) for token in text]})
                file.write(line.encode() + b"\n")
