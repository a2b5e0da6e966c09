"""Encode text as ids and decode ids: GPT-2's byte-level byte-pair encoding.

    word       a piece of the text, found by GPT-2's split pattern; no merge crosses its borders
    symbol     one or more bytes, each byte written as one printable character
    vocab      {symbol: id}, in encoder.json or vocab.json
    merge      two neighbouring symbols that become one symbol
    ranks      {(left, right): rank} of the merges; vocab.bpe or merges.txt lists them in order

Text becomes words, words become bytes, and the bytes of a word are merged: always the pair of
neighbours with the lowest rank, until no pair has a rank. Any text has an encoding because
all 256 bytes are symbols. Sennrich et al. (2016); Radford et al. (2019) Sec. 2.2.
"""

import heapq
import operator

import regex

END_OF_TEXT = "<|endoftext|>"
MOST_WORDS = 2**15  # an Encoder keeps the ids of this many words
BROKEN = "surrogateescape"  # invalid UTF-8 survives decoding and encoding (PEP 383)

# GPT-2's words: contractions, letters, numbers, other signs, white space. A space before
# letters, numbers or signs is part of their word. So of several spaces before a word,
# `\s+(?!\S)` finds all but the last.
SPLIT = regex.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)


def byte_characters():
    """Return {byte: the printable character that stands for it}.

    A byte that is printable in Latin-1 stands for itself; chr(256) and the characters after it
    stand for the other 68.

    >>> len(set(byte_characters().values())), byte_characters()[ord(" ")]
    (256, 'Ġ')
    """
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1),
                 *range(ord("®"), ord("ÿ") + 1)}
    others = [byte for byte in range(256) if byte not in printable]
    characters = {byte: chr(byte) for byte in printable}
    return characters | {byte: chr(256 + i) for i, byte in enumerate(others)}


def merge(symbols, ranks):
    """Merge neighbours, lowest rank first, as long as a pair is in `ranks`.

    The plain loop joins the pair of lowest rank everywhere and searches again; it takes 14
    seconds for a word of 30,000 letters. A heap of (rank, position) over a linked list takes
    O(n log n) steps for n symbols. Both give the same symbols: in GPT-2 a pair that contains a
    merged symbol was learned after this symbol, so its rank is higher: no merge brings up a
    pair that should have come earlier.
    (For a file with ranks in any other order the heap gives the ids that transformers gives.)
    """
    symbols = ["", *symbols, ""]  # both ends are empty symbols, which no merge contains
    # The linked list: symbol i has the neighbours before[i] and after[i].
    before = [*range(-1, len(symbols) - 1)]
    after = [*range(1, len(symbols) + 1)]
    heap: list = []  # of (rank, i, the pair that begins at symbol i)

    def offer(i):
        pair = symbols[i], symbols[after[i]]
        if pair in ranks:
            heapq.heappush(heap, (ranks[pair], i, pair))

    for i in range(len(symbols) - 1):
        offer(i)
    while heap:
        _, i, pair = heapq.heappop(heap)
        j = after[i]
        if pair != (symbols[i], symbols[j]):
            continue  # an old offer: one of the two symbols has been merged since
        symbols[i] = "".join(pair)
        symbols[j] = ""
        after[i] = after[j]  # j leaves the list
        before[after[j]] = i
        # The merged symbol forms new pairs with its two neighbours.
        offer(before[i])
        offer(i)
    return [symbol for symbol in symbols if symbol]


class Encoder:
    """Encode text to ids and decode ids to text.

    Parameters
    ----------
    vocab : dict of str to int
        The symbols and their ids.
    merges : list of (str, str)
        Pairs that may be merged, most important first.
    end_of_text : str
        The symbol that ends a text. The attribute `end_of_text` is its id, or None.
    added : list of str
        Further symbols, written as plain text and not in byte characters. `encode` does not
        return their ids or the id of `end_of_text`, unless the symbol is a byte's or a merge
        makes it: such a symbol stands for its bytes.

    Raises
    ------
    ValueError
        If the ids are not 0 .. n - 1, a byte has no symbol, a merge is not a pair, or it makes
        an unknown symbol.

    Examples
    --------
    >>> vocab = {char: token for token, char in enumerate(byte_characters().values())}
    >>> encoder = Encoder(vocab | {"ab": 256}, [("a", "b")])
    >>> encoder.decode(encoder.encode("abc déjà vu")), len(encoder.encode("ab"))
    ('abc déjà vu', 1)
    """

    def __init__(self, vocab, merges, end_of_text=END_OF_TEXT, added=()):
        # <|endoftext|> is special even if a different symbol ends a text.
        self.special = {END_OF_TEXT, end_of_text, *added}
        self.characters = byte_characters()
        check_merges(merges, vocab)
        # A symbol that a text is encoded as, such as a newline that ends a text, is not.
        self.special -= {*self.characters.values(), *map("".join, merges)}
        # The table for str.translate: {number of a character: the byte it stands for}.
        self.bytes = {ord(character): byte for byte, character in self.characters.items()}
        check_vocab(vocab, set(self.characters.values()), self.special)
        self.vocab = vocab
        self.symbols = {token: symbol for symbol, token in vocab.items()}
        self.ranks = {tuple(pair): rank for rank, pair in enumerate(merges)}
        self.end_of_text = vocab.get(end_of_text)
        self.end_tokens = {self.end_of_text} - {None}  # empty if no symbol ends a text
        self.n_vocab = len(vocab)
        self.ids_of_words: dict[str, tuple] = {}  # a memo, because a text repeats its words

    def to_characters(self, text):
        """Return a text with each byte of its UTF-8 as one character."""
        data = text.encode("utf-8", BROKEN)
        # Latin-1 decodes byte b to chr(b), which `translate` replaces by the byte's character.
        return data.decode("latin-1").translate(self.characters)

    def encode_word(self, word):
        """Return the ids of one word."""
        if word not in self.ids_of_words:
            if len(self.ids_of_words) == MOST_WORDS:
                self.ids_of_words.clear()  # keeps the memo small
            symbols = merge(self.to_characters(word), self.ranks)
            self.ids_of_words[word] = tuple(self.vocab[symbol] for symbol in symbols)
        return self.ids_of_words[word]

    def encode(self, text):
        """Return the ids of a text; ValueError for a lone surrogate, which UTF-8 lacks."""
        return self.encode_bytes(text.encode("utf-8"))

    def encode_bytes(self, data):
        """Return the ids of bytes, which may begin or end within a character."""
        text = data.decode("utf-8", BROKEN)
        return [token for word in SPLIT.findall(text) for token in self.encode_word(word)]

    def id_of(self, text):
        """Return the id of the symbol with this text; ValueError if there is none."""
        # The symbol of a special token is its text; any other symbol spells bytes.
        symbol = text if text in self.special else self.to_characters(text)
        if symbol not in self.vocab:
            pieces = [self.decode([token]) for token in self.encode(text)]
            raise ValueError(f"need a single token of the vocabulary, got {text!r}, which is "
                             f"{len(pieces)}: {', '.join(map(repr, pieces))}")
        return self.vocab[symbol]

    def decode_bytes(self, ids):
        """Return the bytes that the ids stand for; they may end within a character."""
        return b"".join(map(self.bytes_of, ids))

    def bytes_of(self, token):
        """Return the bytes that an id stands for."""
        try:
            symbol = self.symbols[operator.index(token)]
        except (TypeError, KeyError):
            last = self.n_vocab - 1
            raise ValueError(f"need ids in 0 .. {last}, got {token!r:.80}") from None
        if symbol in self.special:
            return symbol.encode()
        # `translate` gives chr(b) for byte b, and Latin-1 encodes chr(b) as byte b.
        return symbol.translate(self.bytes).encode("latin-1")

    def decode(self, ids):
        """Return the text of the ids; bytes that are not UTF-8 become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")


# ---- checks of arguments

def check_vocab(vocab, characters, special):
    """Raise ValueError unless the ids are 0 .. n - 1 and every byte has a symbol.

    A special symbol must be a text, and any other symbol must consist of byte characters.
    """
    ids = vocab.values()
    are_ints = all(type(token) is int for token in ids)
    if not are_ints or sorted(ids) != [*range(len(vocab))]:
        raise ValueError(f"need ids 0 .. {len(vocab) - 1} for {len(vocab)} symbols")
    if missing := characters - vocab.keys():
        raise ValueError(f"need a symbol for every byte, got none for {min(missing)!r}")
    for symbol in vocab.keys() - special:
        if not characters.issuperset(symbol):
            raise ValueError(f"need symbols of byte characters, got {symbol!r}")
    for symbol in special & vocab.keys():
        # JSON can hold other types, and halves of characters (Cs), which UTF-8 lacks.
        if not isinstance(symbol, str) or regex.search(r"\p{Cs}", symbol):
            raise ValueError(f"need symbols that are text in UTF-8, got {symbol!r:.80}")


def check_merges(merges, vocab):
    """Raise ValueError for a merge that is not a pair, or does not make a symbol of `vocab`."""
    for pair in merges:
        # A string is refused even if it has two letters: "ab" would unpack as a pair.
        if isinstance(pair, str) or len(pair) != 2 or "" in pair:
            raise ValueError(f"need merges that are pairs of symbols, got {pair!r:.80}")
        if "".join(pair) not in vocab:
            raise ValueError(f"need a symbol for every merge, got none for {''.join(pair)!r}")
