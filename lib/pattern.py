"""Tell which tokens a pattern allows after a text: a regular expression, JSON schema or grammar.

    pattern    Pattern(grammar, encoder, n_prompt): the tokens after the prompt have to fit
    ids        the whole text, prompt included; a guess may be among the last tokens
    allowed    [n_vocab] of bool: the tokens after which the text can still fit, and the end of
               text where the pattern may end

`pattern(ids)` returns `allowed`. The library, llguidance, walks the pattern token by token. What
it has read is kept like a key/value cache: the common start of two texts is not read again, and
no answer depends on earlier calls.
"""

import importlib
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

KINDS = ("regex", "json_schema", "lark")
ONE_SPACING = {"whitespace_flexible": False}  # of JSON: a model could write spaces without end


def library() -> Any:
    """Import llguidance; ValueError that names the command if it is missing."""
    try:
        return importlib.import_module("llguidance")
    except ModuleNotFoundError:
        raise ValueError("a pattern needs the package llguidance: "
                         "pip install -r requirements/pattern.txt") from None


def grammar_of(kind: str, text: str, name: str | None = None) -> str:
    """Return the grammar of a pattern; ValueError with the library's reason if it is wrong.

    `name` is what the error calls the pattern; by default the flag of this kind.
    """
    matcher = library().LLMatcher
    options = {}
    try:
        if kind == "json_schema":
            json.loads(text)
            options = {"overrides": ONE_SPACING}
        grammar = getattr(matcher, f"grammar_from_{kind}")(text, **options)
        message = matcher.validate_grammar(grammar)
    except ValueError as error:
        message = str(error)
    if message:
        raise ValueError(f"{name or f'--{kind}'} is not valid: {' '.join(message.split())}")
    if not has_texts(grammar):
        raise ValueError(f"{name or f'--{kind}'} fits no text")
    return grammar


def has_texts(grammar: str) -> bool:
    """Return whether a vocabulary of all bytes can begin a text that fits."""
    matcher = library().LLMatcher(tokenizer_of(BYTES), grammar)
    matcher.compute_bitmask()  # fails where no token may follow and the text may not end
    return not matcher.is_error()


class Bytes:
    """Have a token for each byte, and an end of text: what a Vocabulary needs of an encoder."""

    end_of_text = 256
    n_vocab = 257

    def decode_bytes(self, ids):
        return bytes(i for i in ids if i != self.end_of_text)

    def encode_bytes(self, text):
        return list(text)


BYTES = Bytes()


class Vocabulary:
    """Hold the bytes of each token, as llguidance's TokenizerWrapper asks for them."""

    def __init__(self, encoder):
        if encoder.end_of_text is None:
            raise ValueError("a pattern needs a tokenizer with an end of text, which ends the "
                             "text where the pattern ends")
        self.encoder = encoder
        self.eos_token_id = encoder.end_of_text
        self.bos_token_id = None
        self.special_token_ids = [encoder.end_of_text]
        self.tokens = [encoder.decode_bytes([token]) for token in range(encoder.n_vocab)]

    def __call__(self, text):
        return self.encoder.encode_bytes(text if isinstance(text, bytes) else text.encode())


@cache  # a run makes several patterns, and the bytes of a large vocabulary take long
def tokenizer_of(encoder) -> Any:
    """Return llguidance's tokenizer of an encoder's vocabulary."""
    llguidance = library()
    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(Vocabulary(encoder)),
                                  n_vocab=encoder.n_vocab)


class Pattern:
    """Return the allowed tokens after a text, of which the first n_prompt are the prompt."""

    def __init__(self, grammar: str, encoder, n_prompt: int):
        self.matcher = library().LLMatcher(tokenizer_of(encoder), grammar)
        if self.matcher.is_error():
            message = " ".join(self.matcher.get_error().split())
            raise ValueError(f"this tokenizer cannot write the pattern: {message}")
        self.n_prompt = n_prompt
        self.end_of_text = encoder.end_of_text
        self.n_vocab = encoder.n_vocab
        self.read: list[int] = []  # the tokens after the prompt that the matcher has read
        self.masks: dict[int, np.ndarray] = {}  # n: what is allowed after the first n of them

    def __call__(self, ids: Sequence[int]) -> np.ndarray:
        """Return `allowed` after these ids.

        After an end of text only that token is allowed. After tokens that do not fit, which no
        text of the target has, all are.
        """
        new = list(ids[self.n_prompt :])
        if self.end_of_text in new:
            return np.arange(self.n_vocab) == self.end_of_text
        # The target asks for the rows that the draft asked for: their masks are still there.
        if len(new) in self.masks and self.read[: len(new)] == new:
            return self.masks[len(new)]
        if not self.follow(new):
            return np.ones(self.n_vocab, dtype=bool)
        bits = np.frombuffer(self.matcher.compute_bitmask(), dtype=np.uint8)
        mask = np.unpackbits(bits, count=self.n_vocab, bitorder="little").astype(bool)
        mask.flags.writeable = False  # it is handed out again
        self.masks[len(new)] = mask
        return mask

    def may_end(self, ids: Sequence[int]) -> bool:
        """Return whether the text fits the pattern if it ends here."""
        return self.follow(list(ids[self.n_prompt :])) and self.matcher.is_accepting()

    def follow(self, new: list[int]) -> bool:
        """Let the matcher read these tokens, from where they differ; return whether they fit."""
        n_same = 0
        while n_same < min(len(self.read), len(new)) and self.read[n_same] == new[n_same]:
            n_same += 1
        if n_same < len(self.read):
            self.matcher.rollback(len(self.read) - n_same)
            self.masks = {n: mask for n, mask in self.masks.items() if n <= n_same}
        n_fit = self.matcher.try_consume_tokens(new[n_same:])
        self.read = new[: n_same + n_fit]
        return n_same + n_fit == len(new)
