"""Test tokenizers of transformers: the bytes of the tokens, special tokens and chats."""

import codecs
import json

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs requirements/peers.txt")
transformers = pytest.importorskip("transformers", reason="needs requirements/peers.txt")

from tokenizers import AddedToken  # noqa: E402
from tokenizers.processors import TemplateProcessing  # noqa: E402

from tests import bundled  # noqa: E402
from utils import MODELS_DIR  # noqa: E402
from wrappers.intersection import CommonTokens  # noqa: E402
from wrappers.transformers_tokenizer import transformers_tokenizer  # noqa: E402

TEXT = "déjà vu 🙂, naïve 漢字: ab cab\n\n  two spaces, <0x41> "


def sentencepiece(ends_texts=False):
    """Return a tokenizer as Llama 2's, with few pieces and a token for each byte."""
    symbols = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)),
               "▁", "a", "b", "c", "ab", "▁ab", "é", "漢"]
    tokenizer = transformers.LlamaTokenizer(
        vocab={symbol: token for token, symbol in enumerate(symbols)},
        merges=[("a", "b"), ("▁", "ab")])
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A" + " </s>" * ends_texts, special_tokens=[("<s>", 1), ("</s>", 2)])
    return tokenizer


def byte_level():
    """Return the bundled tokenizer with three more tokens: special, added, and a chat's end."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODELS_DIR / "tales-small")
    tokenizer.add_tokens([AddedToken("<|end|>", special=True), AddedToken("<think>")])
    return tokenizer


@pytest.fixture(params=[sentencepiece, byte_level], scope="module")
def tokenizer(request):
    return transformers_tokenizer(request.param())


def test_the_bundled_vocabulary_is_read_as_encoder_reads_it():
    ours, theirs = bundled.encoder(), transformers_tokenizer(MODELS_DIR / "tales-large")
    assert theirs.encode(TEXT) == ours.encode(TEXT)
    assert theirs.decode(ours.encode(TEXT)) == TEXT
    assert theirs.n_vocab == ours.n_vocab and theirs.symbols == ours.symbols
    assert theirs.end_of_text == ours.end_of_text and theirs.end_tokens == {ours.end_of_text}
    text_tokens = [token for token in range(ours.n_vocab) if token != ours.end_of_text]
    assert all(theirs.decode_bytes([token]) == ours.decode_bytes([token])
               for token in text_tokens)
    assert theirs.id_of(" the") == ours.id_of(" the")
    assert theirs.id_of("<|endoftext|>") == ours.end_of_text


def test_streamed_text_never_shows_half_a_character(tokenizer):
    ids = tokenizer.encode(TEXT)
    reader = codecs.getincrementaldecoder("utf-8")("replace")
    pieces = [reader.decode(tokenizer.decode_bytes([token])) for token in ids]
    assert tokenizer.decode(ids) == TEXT and "\ufffd" not in "".join(pieces)
    assert "".join(pieces).removeprefix(" ") == TEXT
    alone = "".join(tokenizer.decode([token]) for token in ids)
    assert "\ufffd" in alone  # so that this text has characters of several tokens


def test_sentencepiece_writes_spaces_and_bytes():
    tokenizer = transformers_tokenizer(sentencepiece())
    assert [tokenizer.token_bytes[token] for token in (0, 1, 2, 3 + 0xE2, 259, 264, 265)] == [
        b"", b"", b"", b"\xe2", b" ", b" ab", "é".encode()]
    assert tokenizer.encode("ab") == [1, 264]
    assert tokenizer.decode([1, 264]) == "ab" and tokenizer.decode([264]) == " ab"
    assert tokenizer.encode_bytes(b"ab") == [264]  # without <s>
    assert tokenizer.special == {"<unk>", "<s>", "</s>"}
    # The first of two tokens with the same bytes; tokenizers lists a vocabulary in any order.
    assert [tokenizer.id_of(letter) for letter in "abc"] == [3 + ord(letter) for letter in "abc"]


def test_a_prompt_does_not_end_with_an_end_token():
    tokenizer = transformers_tokenizer(sentencepiece(ends_texts=True))
    assert tokenizer.encode("ab") == [1, 264]
    assert tokenizer.encode("ab</s>") == [1, 264, 2]  # as the user wrote it


def test_messages_go_through_the_chat_template():
    made = sentencepiece()
    made.chat_template = "<{{ messages[0].content }}>"
    assert transformers_tokenizer(made).chat_text([{"role": "user", "content": "ab"}]) == "<ab>"


def test_what_is_no_token_or_no_text_is_refused_as_by_encoder(tokenizer):
    for bad in ("\ud800", "a\udcff"):
        with pytest.raises(UnicodeEncodeError):
            tokenizer.encode(bad)
    for bad, got in (("xq", "'xq', whi"), ("", "''")):
        with pytest.raises(ValueError, match=f"need a single token of the vocabulary, got {got}"):
            tokenizer.id_of(bad)
    for bad in (-1, tokenizer.n_vocab):
        with pytest.raises(ValueError, match=rf"need ids in 0 \.\. .*\d+, got {bad}"):
            tokenizer.decode([bad])


def test_two_families_have_common_tokens():
    common = CommonTokens(transformers_tokenizer(sentencepiece()),
                          transformers_tokenizer(MODELS_DIR / "tales-small"))
    ours = bundled.encoder()
    assert common.draft_text(ours.encode("ab")) == [264]
    assert len(common.ids) > 250 and len(np.unique(common.ids)) == len(common.ids)


@pytest.mark.parametrize("model_type", ["gpt2", "t5", "llama"])
def test_a_folder_without_a_tokenizer_is_refused(model_type, tmp_path, capfd):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}), "utf-8")
    with pytest.raises(ValueError, match="a tokenizer in .*tokenizer.json") as refused:
        transformers_tokenizer(tmp_path)
    assert "\n" not in str(refused.value) and capfd.readouterr().out == ""


def test_a_tokenizer_without_a_file_of_rules_is_refused():
    with pytest.raises(ValueError, match="need a fast tokenizer .*, got object"):
        transformers_tokenizer(object())


def test_tokens_that_the_model_has_no_row_for_are_left_out():
    cut = transformers_tokenizer(byte_level())
    whole = transformers_tokenizer(byte_level())
    end, thinks, n_vocab = cut.id_of("<|end|>"), cut.id_of("<think>"), cut.n_vocab
    cut.cut(n_vocab + 5)  # more rows than tokens change nothing
    assert cut.symbols == whole.symbols
    cut.cut(end)
    assert end < thinks < n_vocab and cut.n_vocab == end
    assert cut.symbols == {token: whole.symbols[token] for token in range(end)}
    assert cut.special == whole.special - {"<|end|>"}
    with pytest.raises(ValueError, match="need ids in 0 .."):
        cut.id_of("<think>")
    with pytest.raises(ValueError, match="need ids in 0 .."):
        cut.decode_bytes([end])
    assert cut.end_of_text == whole.end_of_text and cut.end_tokens == whole.end_tokens
    cut.cut(whole.end_of_text)
    assert cut.end_of_text is None and not cut.end_tokens
