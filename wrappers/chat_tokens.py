"""Encode and decode text for models other than GPT-2: tokenizer.json, or a GGUF file's fields.

Adds to encoder.py: tokenizers of other families, special tokens, and chats. The package
tokenizers splits a text and merges its symbols.

    byte-level     each byte is written as one printable character (GPT-2, Llama 3, Qwen)
    SentencePiece  "▁" is a space, and <0xE2> a byte that has no other token (Llama 2, Gemma)
    special token  stands for no text: it begins or ends a text, or a message of a chat

A text is shown as the bytes of its tokens, joined. A character may take several tokens, and
is then held back until its last byte is written.
"""

import re
from contextlib import contextmanager

from cache import check_ids
from encoder import byte_characters
from lib.backend.arrays import in_one_line
from lib.checkpoints.chat_template import render
from lib.checkpoints.files import read_json
from lib.checkpoints.vocabulary import ends_of_folder
from lib.packages import package

TO_BYTES = str.maketrans({character: chr(byte) for byte, character in
                          byte_characters().items()})
ALPHABET = frozenset(byte_characters().values())
BYTE = re.compile(r"<0x([0-9A-F]{2})>")

# Words of Llama 3 and Qwen2, with the pattern of a number left out. The vocabulary of a GGUF
# file names its pattern; these are llama.cpp's (src/llama-vocab.cpp).
WORDS = (r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\n\p{L}\p{N}]?\p{L}+|%s|"
         r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# {tokenizer.ggml.pre: a pattern that splits the text before GPT-2's own pattern, or None; and
# whether this is the only pattern}
SPLITS = {"gpt-2": (None, False), "smollm": (r"\p{N}", False),
          "llama-bpe": (WORDS % r"\p{N}{1,3}", True), "qwen2": (WORDS % r"\p{N}", True)}
SPECIAL, USER_DEFINED = 3, 4  # llama.cpp's types of tokens


class ChatTokens:
    """Encode text to ids and decode ids to text, with the names of encoder.Encoder.

    Parameters
    ----------
    tokenizer : tokenizers.Tokenizer
    names : dict of str to str
        The symbols of "bos_token" and "eos_token", and further names that a template reads.
    ends : list of int
        The tokens at which a text ends; without any it is eos_token.
    template : str or None
        The chat template, in Jinja.
    """

    def __init__(self, tokenizer, names, ends=(), template=None):
        self.tokenizer = tokenizer
        tokenizer.no_truncation()  # tokenizer.json may ask for both, for training
        tokenizer.no_padding()
        self.names = names
        self.template = template
        self.has_chats = template is not None
        # {token: its symbol, as files write it}
        self.symbols = {token: symbol for symbol, token in tokenizer.get_vocab().items()}
        self.n_vocab = max(self.symbols) + 1  # ids may have holes
        # {token: the bytes that it stands for, b"" for a special token}
        self.token_bytes = bytes_of_tokens(tokenizer, self.symbols)
        self.set_names()
        self.end_of_text = self.id_of_name("eos_token")
        self.end_tokens = set(ends) or {self.end_of_text} - {None}
        if self.end_of_text is None:
            self.end_of_text = min(self.end_tokens, default=None)
        # SentencePiece writes a space before the first word, which is not in the text.
        self.adds_space = self.decode_bytes(self.encode("a")) == b" a"

    def id_of_name(self, name):
        """Return the id of a special token by its role, such as bos_token, or None."""
        symbol = self.names.get(name)
        return None if symbol is None else self.tokenizer.token_to_id(symbol)

    def cut(self, n_vocab):
        """Leave out the tokens from id n_vocab on, for which the model has no rows."""
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
        # {bytes: token}. Reversed, because the last entry of the same bytes remains.
        self.tokens = {data: token for token, data in reversed(self.token_bytes.items())}

    def encode(self, text):
        """Return the ids of a text, with the tokens that begin every text (<s>).

        The name of a special token in the text becomes that token.
        """
        text.encode("utf-8")  # ValueError for a lone surrogate, as Encoder.encode
        encoding = self.tokenizer.encode(text)
        # Some tokenizers add the end of a text to every text, which a model would not continue.
        # The mask has a 1 for an added token, so an end that the caller wrote stays.
        is_added = encoding.special_tokens_mask[-1:] == [1]
        if is_added and encoding.ids[-1] == self.end_of_text:
            return encoding.ids[:-1]
        return encoding.ids

    def encode_bytes(self, data):
        """Return the ids of bytes, which may begin or end within a character; no <s>.

        This is also how a chat is encoded, because its template writes <s> itself.
        """
        # A part of a character becomes the character U+FFFD.
        text = data.decode("utf-8", "replace")
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def chat_text(self, messages):
        """Return a chat as one text up to the model's answer, with names of special tokens."""
        is_chat = isinstance(messages, list) and messages and all(
            isinstance(message, dict) and {"role", "content"} <= message.keys()
            for message in messages)
        if not is_chat:
            raise ValueError('need messages [{"role": .., "content": ..}, ..], '
                             f"got {messages!r:.80}")
        return render(self.template, messages, self.names)

    def decode_bytes(self, ids):
        """Return the bytes of the ids, which may end within a character."""
        check_ids(ids, self.n_vocab)
        # An id in a hole of the vocabulary has no bytes.
        return b"".join(self.token_bytes.get(int(token), b"") for token in ids)

    def decode(self, ids):
        """Return the text of the ids; bytes that are not UTF-8 become U+FFFD."""
        text = self.decode_bytes(ids).decode("utf-8", errors="replace")
        # Without the token that begins a text the ids are a piece of a text, whose first space
        # belongs to it.
        begins_text = len(ids) > 0 and ids[0] == self.id_of_name("bos_token")
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
            return self.tokenizer.token_to_id(text)
        if text and text.encode() in self.tokens:
            return self.tokens[text.encode()]
        pieces = [self.decode([token]) for token in self.encode_bytes(text.encode())]
        raise ValueError(f"need a single token of the vocabulary, got {text!r}, which is "
                         f"{len(pieces)}: {', '.join(map(repr, pieces))}")


# ---- the bytes of tokens

def bytes_of_tokens(tokenizer, symbols):
    """Return {token: bytes}, b"" for special tokens."""
    # The decoder may be a sequence of decoders, which its repr lists at any depth.
    is_byte_level = "ByteLevel(" in repr(tokenizer.decoder)
    bytes_of = byte_level_bytes if is_byte_level else sentencepiece_bytes
    token_bytes = {token: bytes_of(symbol) for token, symbol in sorted(symbols.items())}
    # The symbol of an added token is its text, and is not written in the tokenizer's alphabet.
    for token, added in tokenizer.get_added_tokens_decoder().items():
        token_bytes[token] = b"" if added.special else added.content.encode()
    return token_bytes


def byte_level_bytes(symbol):
    """Return the bytes of a byte-level symbol, such as b" a" of "Ġa"."""
    # A symbol with a character outside the alphabet, such as a space, stands for its own text.
    if not ALPHABET.issuperset(symbol):
        return symbol.encode()
    return symbol.translate(TO_BYTES).encode("latin-1")  # chr(b) becomes byte b


def sentencepiece_bytes(symbol):
    """Return the bytes of a SentencePiece symbol, such as b" a" of "▁a"."""
    # <0xE2> is one byte of a character that has no token.
    if byte := BYTE.fullmatch(symbol):
        return bytes.fromhex(byte[1])
    return symbol.replace("▁", " ").encode()


# ---- files

def library():
    """Import tokenizers; ValueError if it is missing."""
    return package("tokenizers", "models other than GPT-2 need", "llama.txt")


def tokens_of_folder(folder):
    """Return the ChatTokens of tokenizer.json, with the names, ends and template beside it."""
    path = folder / "tokenizer.json"
    new_tokenizer = library().Tokenizer
    with one_sentence(path):
        tokenizer = new_tokenizer.from_file(str(path))
    config_path = folder / "tokenizer_config.json"
    config = read_json(config_path) if config_path.is_file() else {}
    names = {}
    for name, token in config.items():
        # A special token is its symbol, or an object with its symbol.
        symbol = token.get("content") if isinstance(token, dict) else token
        if name.endswith("_token") and isinstance(symbol, str):
            names[name] = symbol
    ends = ends_of_folder(folder)
    with one_sentence(config_path):
        template = default_template(config.get("chat_template"))
    template_path = folder / "chat_template.jinja"
    if template_path.is_file():
        template = template_path.read_text(encoding="utf-8")
    with one_sentence(folder):
        return ChatTokens(tokenizer, names, ends, template)


@contextmanager
def one_sentence(path):
    """Raise any error as a ValueError of one line: values of a stranger's file cause it."""
    try:
        yield
    except Exception as error:  # tokenizers raises Exception itself
        raise ValueError(f"cannot read the tokenizer in {path}: {in_one_line(error)}") from None


def default_template(template):
    """Return a chat template; of several named ones the default one, or None."""
    if isinstance(template, list):  # of {"name": .., "template": ..}
        template = {entry["name"]: entry["template"] for entry in template}
    return template.get("default") if isinstance(template, dict) else template


def tokens_of_gguf(fields, path):
    """Return the ChatTokens of a GGUF file's fields, {name: value}."""
    own = {name.removeprefix("tokenizer.ggml."): value for name, value in fields.items()}
    split = own.get("pre")
    if own.get("model") != "gpt2" or str(split) not in SPLITS:
        raise ValueError(f"the tokenizer of {path} is {own.get('model')} with the split "
                         f"{split}, and only gpt2 with {', '.join(SPLITS)} can be read: "
                         "give the model's Hugging Face folder, which has a tokenizer.json")
    processors = library().processors
    with one_sentence(path):
        symbols = own["tokens"]
        tokenizer = byte_pair_tokenizer(symbols, own["merges"], split)
        add_tokens(tokenizer, symbols, own.get("token_type", ()))
        names = {f"{role}_token": symbols[own[f"{role}_token_id"]]
                 for role in ("bos", "eos") if f"{role}_token_id" in own}
        if own.get("add_bos_token", split == "llama-bpe"):
            bos = names["bos_token"]
            tokenizer.post_processor = processors.TemplateProcessing(
                single=f"{bos} $A", special_tokens=[(bos, own["bos_token_id"])])
        ends = [own[name] for name in ("eos_token_id", "eot_token_id", "eom_token_id")
                if name in own]
        return ChatTokens(tokenizer, names, ends, fields.get("tokenizer.chat_template"))


def add_tokens(tokenizer, symbols, types):
    """Let the special tokens and the user's tokens be found in a text before it is split."""
    for token_type, is_special in ((SPECIAL, True), (USER_DEFINED, False)):
        tokenizer.add_tokens([
            library().AddedToken(symbol, special=is_special, normalized=False)
            for symbol, type_of_symbol in zip(symbols, types) if type_of_symbol == token_type])


def byte_pair_tokenizer(symbols, merges, split):
    """Return the tokenizers.Tokenizer of byte-level symbols, by one of SPLITS."""
    parts = library()
    pattern, is_only_pattern = SPLITS[split]
    vocab = {symbol: token for token, symbol in enumerate(symbols)}
    pairs = [tuple(pair.split(" ", 1)) for pair in merges]
    # Llama 3 looks a word up before it merges its bytes.
    tokenizer = parts.Tokenizer(
        parts.models.BPE(vocab, pairs, ignore_merges=split == "llama-bpe"))
    steps = [parts.pre_tokenizers.ByteLevel(add_prefix_space=False,
                                            use_regex=not is_only_pattern)]
    if pattern:
        steps.insert(0, parts.pre_tokenizers.Split(parts.Regex(pattern), "isolated"))
    tokenizer.pre_tokenizer = parts.pre_tokenizers.Sequence(steps)
    tokenizer.decoder = parts.decoders.ByteLevel()
    return tokenizer
