"""Use a tokenizer of transformers with the names of encoder.Encoder.

Adds to encoder.py: tokenizers of other families, special tokens, and chats.

    byte-level     each byte is written as one printable character (GPT-2, Llama 3, Qwen)
    SentencePiece  "▁" is a space, and <0xE2> a byte that has no other token (Llama 2, Gemma)
    special token  stands for no text: it begins or ends a text, or a message of a chat

A text is shown as the bytes of its tokens, joined. A character may take several tokens, and
is then held back until its last byte is written.
"""

import json
import os
import re
from pathlib import Path

from encoder import byte_characters
from lib.backend.arrays import in_one_line
from lib.checkpoints.hub import model_folder
from lib.checkpoints.vocabulary import end_ids
from wrappers.transformers_model import import_torch, transformers_errors

ALPHABET = {character: byte for byte, character in byte_characters().items()}
NO_TEMPLATE = "this tokenizer has no chat template: give a prompt, not messages"
BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class TransformersTokenizer:
    """Encode text to ids and decode ids to text, as a tokenizer of transformers does.

    Parameters
    ----------
    tokenizer_or_folder : fast tokenizer, path or str
        A tokenizer in memory, its folder, or its name on the hub.

    Attributes
    ----------
    n_vocab : int
        The largest id plus 1. Rows of logits beyond it belong to no token.
    end_of_text : int or None
        The token that ends a text.
    end_tokens : set of int
        All tokens at which a text ends: the ids in generation_config.json, or end_of_text.
    token_bytes : dict of int to bytes
        The bytes that each token stands for; b"" for a special token.
    symbols : dict of int to str
        The tokens as their files write them.
    special : set of str
        The symbols that are special.

    Raises
    ------
    ValueError
        If there is no tokenizer, or its files do not state the bytes of its tokens.
    """

    def __init__(self, tokenizer_or_folder):
        import_torch(tokenizer_or_folder)
        self.tokenizer = tokenizer_or_folder
        folder = None  # a tokenizer in memory has none
        if isinstance(tokenizer_or_folder, str | os.PathLike):
            folder = str(model_folder(os.fspath(tokenizer_or_folder)))
            self.tokenizer = loaded_tokenizer(folder)
        self.symbols = {token: symbol for symbol, token in self.tokenizer.get_vocab().items()}
        self.n_vocab = max(self.symbols) + 1  # ids may have holes
        self.token_bytes = bytes_of_tokens(self.tokenizer, self.symbols)
        self.set_names()
        self.end_of_text = self.tokenizer.eos_token_id
        self.end_tokens = {self.end_of_text} - {None}
        if folder:
            ends = end_ids(Path(folder, "generation_config.json"))
            self.end_tokens = set(ends) or self.end_tokens
        # SentencePiece writes a space before the first word, which is not in the text.
        self.adds_space = self.decode_bytes(self.encode("a")) == b" a"

    def cut(self, n_vocab):
        """Leave out the tokens from id n_vocab on, which the model has no rows for.

        Such a token may stand for an image, in a family whose smallest model reads text alone.
        """
        self.n_vocab = min(self.n_vocab, n_vocab)
        for names in (self.symbols, self.token_bytes):
            for token in [token for token in names if token >= self.n_vocab]:
                del names[token]
        self.set_names()
        self.end_tokens = {token for token in self.end_tokens if token < self.n_vocab}
        if self.end_of_text not in self.symbols:
            self.end_of_text = None

    def set_names(self):
        """Set what is found by a symbol or by bytes, from `symbols` and `token_bytes`."""
        self.special = {symbol for token, symbol in self.symbols.items()
                        if not self.token_bytes[token]}
        # {bytes: token}. A later entry replaces an earlier one with the same bytes, so the
        # order is reversed: the first of several such tokens remains.
        self.tokens = {data: token for token, data in reversed(self.token_bytes.items())}

    def encode(self, text):
        """Return the ids of a text, with the tokens that begin every text (<s>).

        The name of a special token in the text becomes that token, as everywhere in
        transformers.
        """
        text.encode("utf-8")  # ValueError for a lone surrogate, as Encoder.encode
        ids = self.tokenizer(text, verbose=False).input_ids
        if ids[-1:] != [self.end_of_text]:  # True if end_of_text is None
            return ids
        # Some tokenizers add the end of a text to every text, and a model would not continue
        # it. An end that the caller wrote by its name stays.
        end_name = self.symbols[self.end_of_text]
        return ids if text.endswith(end_name) else ids[:-1]

    def encode_bytes(self, data):
        """Return the ids of bytes, which may begin or end within a character; no <s>."""
        # A part of a character is not UTF-8, so it becomes the character U+FFFD.
        text = data.decode("utf-8", "replace")
        return self.tokenizer(text, add_special_tokens=False, verbose=False).input_ids

    @property
    def has_chats(self):
        """Return whether the tokenizer has a chat template."""
        return self.tokenizer.chat_template is not None

    def chat_text(self, messages):
        """Return a chat as one text up to the model's answer, by the tokenizer's chat template.

        `messages` are [{"role": "user", "content": ..}, ..]. The text contains the names of
        special tokens, such as the token that begins a text. ValueError if the tokenizer has no
        template, or the template does not take these messages.
        """
        if not self.has_chats:
            raise ValueError(NO_TEMPLATE)
        is_chat = isinstance(messages, list) and messages and all(
            isinstance(message, dict) and {"role", "content"} <= message.keys()
            for message in messages)
        if not is_chat:
            raise ValueError('need messages [{"role": .., "content": ..}, ..], '
                             f"got {messages!r:.80}")
        # A template is a program from the model's folder, so it can fail like any program: for
        # example, it may add a text to a number.
        try:
            return self.tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=False)
        except Exception as error:
            raise ValueError("the chat template does not take these messages: "
                             f"{in_one_line(error)}") from None

    def encode_messages(self, messages):
        """Return the ids of a chat up to the model's answer; see `chat_text`."""
        text = self.chat_text(messages)
        text.encode("utf-8")  # ValueError for a lone surrogate, as in `encode`
        return self.tokenizer(text, add_special_tokens=False, verbose=False).input_ids

    def decode_bytes(self, ids):
        """Return the bytes of the ids, which may end within a character."""
        for token in ids:
            if not 0 <= token < self.n_vocab:
                raise ValueError(f"need ids in 0 .. {self.n_vocab - 1}, got {token}")
        # An id in a hole of the vocabulary has no bytes.
        return b"".join(self.token_bytes.get(int(token), b"") for token in ids)

    def decode(self, ids):
        """Return the text of the ids; bytes that are not UTF-8 become U+FFFD."""
        text = self.decode_bytes(ids).decode("utf-8", errors="replace")
        # SentencePiece adds its space after the token that begins a text. Without this token
        # the ids are a piece of a text, and a first space belongs to it.
        begins_text = len(ids) > 0 and ids[0] == self.tokenizer.bos_token_id
        if begins_text and self.adds_space:
            return text.removeprefix(" ")
        return text

    def name_of(self, token):
        """Return the text of one token, or its name if it is special."""
        # A special token has no bytes, so its text is empty.
        return self.decode([token]) or self.symbols.get(token, "")

    def id_of(self, text):
        """Return the id of the token with this text or name; ValueError if there is none."""
        if text in self.special:
            return self.tokenizer.convert_tokens_to_ids(text)
        if text and text.encode() in self.tokens:
            return self.tokens[text.encode()]
        pieces = [self.decode([token]) for token in self.encode_bytes(text.encode())]
        raise ValueError(f"need a single token of the vocabulary, got {text!r}, which is "
                         f"{len(pieces)}: {', '.join(map(repr, pieces))}")


def bytes_of_tokens(tokenizer, symbols):
    """Return {token: bytes}, b"" for special tokens.

    ValueError if the tokenizer is not a fast one: only the file of a fast tokenizer states how
    bytes are written in symbols.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ValueError("need a fast tokenizer (tokenizer.json), "
                         f"got {type(tokenizer).__name__}")
    # The decoder may be a sequence of decoders, so its name is searched for at any depth.
    decoder = json.loads(backend.to_str())["decoder"]
    is_byte_level = '"ByteLevel"' in json.dumps(decoder)
    bytes_of = byte_level_bytes if is_byte_level else sentencepiece_bytes
    token_bytes = {token: bytes_of(symbol) for token, symbol in sorted(symbols.items())}
    # The symbol of an added token is its text, and is not written in the tokenizer's alphabet.
    for token, added in tokenizer.added_tokens_decoder.items():
        token_bytes[token] = b"" if added.special else added.content.encode()
    return token_bytes


def byte_level_bytes(symbol):
    """Return the bytes of a byte-level symbol.

    >>> byte_level_bytes("Ġdé"), byte_level_bytes("Ã©").decode()
    (b' d\\xe9', 'é')
    """
    # A symbol with a character outside the alphabet, such as a space, stands for its own text.
    if not all(character in ALPHABET for character in symbol):
        return symbol.encode()
    return bytes(ALPHABET[character] for character in symbol)


def sentencepiece_bytes(symbol):
    """Return the bytes of a SentencePiece symbol.

    >>> sentencepiece_bytes("▁dé").decode(), sentencepiece_bytes("<0xE2>")
    (' dé', b'\\xe2')
    """
    # <0xE2> is one byte of a character that has no token.
    if byte := BYTE.fullmatch(symbol):
        return bytes.fromhex(byte[1])
    return symbol.replace("▁", " ").encode()


def loaded_tokenizer(name):
    """Return the tokenizer of a folder; ValueError if transformers finds none there."""
    from transformers import AutoTokenizer

    with transformers_errors(f"read a tokenizer in {name} (tokenizer.json, or tokenizer.model "
                             "and the package sentencepiece)"):
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        tokenizer("a", verbose=False)  # reads the settings that loading does not read
    # If the files are missing, some classes return a tokenizer with special tokens only. It has
    # no token, or one token, besides these.
    if len(tokenizer) <= len(tokenizer.added_tokens_decoder) + 1:
        raise ValueError(f"need a tokenizer in {name} (tokenizer.json), got none")
    return tokenizer
