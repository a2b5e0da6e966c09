"""Return the tokens that a regular expression, JSON schema or grammar allows after a text.

    pattern    Pattern(grammar, encoder, n_prompt): the tokens after the prompt have to fit it
    ids        the whole text, prompt included; a guess may be among the last tokens
    allowed    [n_vocab] of bool: the tokens after which the text can still fit, and the end of
               text where the pattern may end

`pattern(ids)` returns `allowed`. An object of the library llguidance, a matcher, follows the
pattern token by token. What a matcher has read is kept like a key/value cache: the common
start of two texts is not read again, and no result depends on earlier calls.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, NoReturn

import numpy as np

from lib.checkpoints.files import json_value
from lib.packages import package
from lib.prefix import common_prefix

KINDS = ("regex", "json_schema", "lark")
# JSON may be written with any number of spaces, so a model could write spaces without end.
ONE_SPACING = {"whitespace_flexible": False}
# The number of masks that are kept: more than a round asks for. Not all masks are kept, because
# the masks of a large vocabulary take space.
N_MASKS = 64


class DeadEnd(ValueError):
    """Say that a text which fits the beginning of a pattern cannot go on."""


def llguidance() -> Any:
    """Import llguidance; ValueError if it is missing."""
    return package("llguidance", "a pattern needs", "pattern.txt")


def grammar_of(kind: str, text: str, name: str | None = None) -> str:
    """Return the grammar of a pattern; ValueError with the library's reason if it is wrong."""
    matcher = llguidance().LLMatcher
    options = {}
    try:
        if kind == "json_schema":
            json_value(text)
            options = {"overrides": ONE_SPACING}
        grammar = getattr(matcher, f"grammar_from_{kind}")(text, **options)
        message = matcher.validate_grammar(grammar)
    except ValueError as error:
        message = str(error)
    if message:
        raise ValueError(f"{name or f'--{kind}'} is not valid: {' '.join(message.split())}")
    return grammar


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


# A run makes several patterns, and it takes long to list the bytes of a large vocabulary.
@cache
def tokenizer_of(encoder) -> Any:
    """Return llguidance's tokenizer of an encoder's vocabulary."""
    make = llguidance().LLTokenizer
    # A slice is a pattern for tokens. If the grammar allows every text of a slice, all tokens
    # of the slice are allowed at once, which is faster. The library's own slices are made for
    # the strings of JSON; the last slice is made for words in small letters.
    slices = [*make.general_slices(), "[a-z ]{1,20}"]
    wrapped = llguidance().TokenizerWrapper(Vocabulary(encoder))
    return make(wrapped, n_vocab=encoder.n_vocab, slices=slices)


# ---- matchers

def why_lost(matcher: Any) -> str:
    """Return why a matcher has failed, in a few words."""
    reason = matcher.get_error().split("\n<state>")[0]  # the matcher's state has many lines
    if reason.startswith("NoExtension"):
        return "none of its tokens may follow"
    return " ".join(reason.split())[:200]


# A run makes several patterns, and reading a grammar takes a millisecond.
@lru_cache(maxsize=8)
def matcher_of(grammar: str, encoder) -> Any:
    """Return a matcher that has read nothing; ValueError if no token can begin a text."""
    matcher = llguidance().LLMatcher(tokenizer_of(encoder), grammar, log_level=0)
    if not matcher.is_error():
        matcher.compute_bitmask()  # finds out whether a token can begin a text
    if matcher.is_error():
        raise ValueError(f"this tokenizer cannot write the pattern: {why_lost(matcher)}")
    return matcher


class Pattern:
    """Return the allowed tokens after a text, of which the first n_prompt are the prompt."""

    def __init__(self, grammar: str, encoder, n_prompt: int):
        self.start = matcher_of(grammar, encoder)
        self.tokenizer = tokenizer_of(encoder)
        self.n_prompt = n_prompt
        self.end_of_text = encoder.end_of_text
        self.n_vocab = encoder.n_vocab
        self.forget()

    def forget(self) -> None:
        """Start again at the end of the prompt, with a new matcher."""
        self.matcher = self.start.deep_copy()
        self.read: list[int] = []  # the tokens after the prompt that the matcher has read
        self.masks: dict[int, np.ndarray] = {}  # {n: the mask after the first n of them}

    def __call__(self, ids: Sequence[int]) -> np.ndarray:
        """Return `allowed` after these ids; DeadEnd if no token of the vocabulary may follow.

        After tokens that do not fit the pattern, all are allowed; no text of the target
        contains such tokens.
        """
        new = list(ids[self.n_prompt :])
        # The target asks for masks that the draft has asked for before. These masks are kept.
        if self.read[: len(new)] == new and len(new) in self.masks:
            return self.masks[len(new)]
        if self.end_of_text in new:
            return np.arange(self.n_vocab) == self.end_of_text
        if not self.follow(new):
            return np.ones(self.n_vocab, dtype=bool)
        bits = self.matcher.compute_bitmask()
        if self.matcher.is_error():
            self.fail()
        # Bit 0 of byte 0 is token 0. A bool has a byte per token, so the bits are unpacked.
        mask = np.unpackbits(np.frombuffer(bits, np.uint8), count=self.n_vocab,
                             bitorder="little").view(bool)
        mask.flags.writeable = False  # a later call may return the same array
        self.masks[len(new)] = mask
        self.masks.pop(len(new) - N_MASKS, None)
        return mask

    def may_end(self, ids: Sequence[int]) -> bool:
        """Return whether the text fits the pattern if it ends here."""
        return self.follow(list(ids[self.n_prompt :])) and self.matcher.is_accepting()

    def follow(self, new: list[int]) -> bool:
        """Let the matcher go back and read these tokens; return whether all of them fit."""
        n_same = common_prefix(self.read, new)
        if n_same < len(self.read):
            self.matcher.rollback(len(self.read) - n_same)
        # The matcher reads tokens as long as they fit, and stops at the first that does not.
        n_fit = self.matcher.try_consume_tokens(new[n_same:])
        self.read = new[: n_same + n_fit]
        if self.matcher.is_error():
            self.fail()
        self.masks = {n: mask for n, mask in self.masks.items() if n <= n_same}
        return len(self.read) == len(new)

    def fail(self) -> NoReturn:
        """Raise DeadEnd, and start a new matcher, because this one has failed."""
        reason = why_lost(self.matcher)
        n_read = len(self.read)
        self.forget()
        raise DeadEnd("this tokenizer cannot write the pattern beyond "
                      f"{n_read} new tokens: {reason}")
