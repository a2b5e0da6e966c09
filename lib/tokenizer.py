"""List the attributes and methods of a tokenizer that the programs use."""

from typing import Protocol


class Tokenizer(Protocol):
    """List what encoder.Encoder and ChatTokens (wrappers/chat_tokens.py) both offer."""

    n_vocab: int
    special: set[str]  # the symbols that stand for no text
    end_of_text: int | None  # the token that ends a text, if the vocabulary has one
    end_tokens: set[int]  # all tokens at which a text ends

    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: list[int]) -> str: ...
    def encode_bytes(self, data: bytes) -> list[int]: ...
    def decode_bytes(self, ids: list[int]) -> bytes: ...
    def id_of(self, text: str) -> int: ...
