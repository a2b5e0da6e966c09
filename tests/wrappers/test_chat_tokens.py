"""Test tokenizers of chat models: ids, special tokens, ends, and chat templates."""

import json
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder import byte_characters
from lib.checkpoints import chat_template
from lib.checkpoints.gguf import GGUFFile, gguf_path
from lib.checkpoints.vocabulary import merge_lines
from tests import bundled
from tests.llamas import needs_smollm2
from utils import MODELS_DIR
from wrappers.chat_tokens import SPLITS, tokens_of_folder, tokens_of_gguf

pytest.importorskip("tokenizers", reason="needs requirements/llama.txt")

RECORDED = json.loads((MODELS_DIR.parent / "tests/data/llama_cpp_tokens.json").read_text("utf-8"))
CHAT = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi <b> ünï"},
        {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "1 + 1?"}]


def field_names(**fields):
    """Return fields of a GGUF file under their full names."""
    return {f"tokenizer.ggml.{name}": value for name, value in fields.items()}


def small_fields(split, **more):
    """Return the fields of a vocabulary of bytes, a few merges, two whole words, and an end."""
    merges = ["1 2", "12 3", "123 4", "3 4", "Ġ 1", "Ġ1 2", "h e", "Ġ Ġ", "Ċ Ċ", ". Ċ", "' S",
              "L L"]
    symbols = [*byte_characters().values(), *(pair.replace(" ", "") for pair in merges),
               "Ġhello", "hello", "<|end|>"]
    return field_names(model="gpt2", pre=split, tokens=symbols, merges=merges,
                       token_type=[1] * 270 + [3], bos_token_id=270, eos_token_id=270, **more)


@pytest.fixture(scope="module")
def smollm2_fields():
    """Return the fields of SmolLM2's GGUF file."""
    needs_smollm2()
    return GGUFFile(gguf_path("smollm2")).fields


# ---- ids

@pytest.mark.parametrize("split", SPLITS)
def test_ids_are_those_of_llama_cpp_on_200_texts(split, smollm2_fields):
    """RECORDED is of xllamacpp 2026.10, SmolLM2's vocabulary, and all four splits."""
    encoder = tokens_of_gguf(smollm2_fields | field_names(pre=split), "a.gguf")
    assert len(RECORDED) == 200
    for text, ids in RECORDED:
        assert encoder.encode(text) == ids.get(split, ids["smollm"]), text


# The ids of xllamacpp 2026.10 for the vocabulary of `small_fields`.
TEXTS = {
    "1234 12345": {"gpt-2": [258, 220, 258, 20], "llama-bpe": [270, 257, 19, 220, 257, 19, 20],
                   "qwen2": [16, 17, 18, 19, 220, 16, 17, 18, 19, 20]},
    "x 12  34": {"smollm": [87, 220, 16, 17, 263, 18, 19], "gpt-2": [87, 220, 256, 220, 220, 259]},
    " hello hello": {"qwen2": [220, 262, 75, 75, 78] * 2, "llama-bpe": [270, 268, 268]},
    "a hello.\n\n": {"llama-bpe": [270, 64, 268, 13, 264]},
    "'S 'LL 'll": {"gpt-2": [6, 50, 220, 6, 267, 220, 6, 75, 75],
                   "qwen2": [266, 220, 6, 267, 220, 6, 75, 75]},
    "1\n\n2 .\n": {"smollm": [16, 264, 17, 220, 13, 198], "gpt-2": [16, 198, 198, 17, 220, 13, 198],
                   "llama-bpe": [270, 16, 264, 17, 220, 265]},
    "<|end|>hello<|end|> 12": {"smollm": [270, 262, 75, 75, 78, 270, 220, 16, 17],
                               "llama-bpe": [270, 270, 269, 270, 220, 256]}}


@pytest.mark.parametrize("text", TEXTS)
def test_each_split_has_its_own_words(text):
    """Only llama-bpe keeps three digits together, looks words up whole, and begins a text."""
    for split, ids in TEXTS[text].items():
        assert tokens_of_gguf(small_fields(split), "a.gguf").encode(text) == ids


@cache
def bundled_tokens():
    """Return the bundled vocabulary as a GGUF file's."""
    ours = bundled.encoder()
    symbols = sorted(ours.vocab, key=ours.vocab.get)
    fields = field_names(model="gpt2", pre="gpt-2", tokens=symbols, merges=merge_lines(ours))
    return tokens_of_gguf(fields, "a.gguf")


@given(st.text(st.sampled_from("ab 17'sLé漢🙂\n\t.")) | st.text())
def test_gpt2s_split_is_encoders(text):
    ids = bundled.encoder().encode(text)
    assert bundled_tokens().encode(text) == ids and bundled_tokens().decode(ids) == text


@pytest.mark.parametrize("fields", [{"pre": "tekken"}, {"pre": None}, {"model": "llama"}])
def test_a_tokenizer_that_is_not_known_is_refused(fields):
    with pytest.raises(ValueError, match="the tokenizer of a.gguf is .*, and only gpt2 with gpt-2, "
                                         ".* can be read: give the model's Hugging Face folder"):
        tokens_of_gguf(small_fields("gpt-2") | field_names(**fields), "a.gguf")


def test_all_ends_of_a_gguf_file_end_a_text():
    encoder = tokens_of_gguf(small_fields("smollm", eot_token_id=3, eom_token_id=5), "a.gguf")
    assert encoder.end_tokens == {270, 3, 5} and encoder.end_of_text == 270
    assert encoder.decode([270]) == "" and encoder.name_of(270) == "<|end|>"
    begins = tokens_of_gguf(small_fields("smollm", add_bos_token=True), "a.gguf")
    assert begins.encode("a") == [270, 64] and begins.encode_bytes(b"a") == [64]


def test_a_token_of_the_user_is_a_text_and_a_special_token_is_none():
    types = [1] * 268 + [4, 4, 3]
    encoder = tokens_of_gguf(small_fields("gpt-2") | field_names(token_type=types), "a.gguf")
    assert encoder.encode("xhello<|end|>") == [87, 269, 270]
    assert encoder.decode([87, 269, 270]) == "xhello"
    assert encoder.id_of("hello") == 269 and encoder.id_of("<|end|>") == 270


# ---- a folder

@pytest.fixture
def folder(tmp_path):
    """Return a folder with the tokenizer.json of `small_fields`, whose end is <|end|>."""
    made = tokens_of_gguf(small_fields("llama-bpe", add_bos_token=False), "a.gguf")
    made.tokenizer.enable_truncation(2)  # such files are left by training
    made.tokenizer.enable_padding(length=9)
    made.tokenizer.save(str(tmp_path / "tokenizer.json"))
    write(tmp_path, "tokenizer_config.json", {
        "eos_token": {"content": "<|end|>"}, "bos_token": "hello", "model_max_length": 9})
    return tmp_path


def write(folder, name, value):
    (folder / name).write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")


def test_a_folder_is_read_as_its_gguf_file(folder):
    of_gguf = tokens_of_gguf(small_fields("llama-bpe", add_bos_token=False), "a.gguf")
    of_folder = tokens_of_folder(folder)
    for text in TEXTS:
        assert of_folder.encode(text) == of_gguf.encode(text)
    assert of_folder.token_bytes == of_gguf.token_bytes
    assert of_folder.end_tokens == {270} and of_folder.names["bos_token"] == "hello"


def test_generation_config_overrides_config_and_has_several_ends(folder):
    write(folder, "config.json", {"eos_token_id": 5})
    assert tokens_of_folder(folder).end_tokens == {5}
    write(folder, "generation_config.json", {"eos_token_id": [270, 7]})
    assert tokens_of_folder(folder).end_tokens == {270, 7}
    write(folder, "tokenizer_config.json", {})  # no eos_token: one of the ends
    assert tokens_of_folder(folder).end_of_text == 7


def test_a_template_is_in_a_file_or_in_the_settings_alone_or_by_name(folder):
    assert not tokens_of_folder(folder).has_chats
    named = [{"name": "tools", "template": "t"}, {"name": "default", "template": "d"}]
    for template, expected in (("s", "s"), (named, "d"), (named[:1], None)):
        write(folder, "tokenizer_config.json", {"chat_template": template})
        assert tokens_of_folder(folder).template == expected
    write(folder, "chat_template.jinja", "j")
    assert tokens_of_folder(folder).template == "j"


@pytest.mark.parametrize("field, value", [
    ("tokens", None), ("tokens", ["a"]), ("merges", ["ab"]), ("merges", ["a b"]),
    ("eos_token_id", 10**6), ("token_type", 7)])
def test_a_gguf_file_with_broken_fields_is_refused(field, value):
    with pytest.raises(ValueError, match="^cannot read the tokenizer in a.gguf: [^\n]*$"):
        tokens_of_gguf(small_fields("gpt-2") | field_names(**{field: value}), "a.gguf")


def test_without_the_package_the_command_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    for read, arguments in ((tokens_of_folder, (folder,)),
                           (tokens_of_gguf, (small_fields("gpt-2"), "a.gguf"))):
        with pytest.raises(ValueError, match="^models other than GPT-2 need the package tokenizers:"
                                             " pip install -r requirements/llama.txt$"):
            read(*arguments)


# ---- chats

SAMPLE = """{% for m in messages %}
  {% if m.role != 'system' %}
{{ m.role }}
  {% endif %}
{% endfor %}
{% if add_generation_prompt %}>{% endif %}
{{ bos_token }}{{ messages[0].content | tojson }}{{ eos_token }}{{ pad_token }}
{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}
{% generation %}{{ m.content }}{% endgeneration %}{% if loop.index == 3 %}{% break %}{% endif %}
{% endfor %}
{% set n = namespace(k=1) %}{% for m in messages %}{% set n.k = n.k + 1 %}{% endfor %}{{ n.k }}
{{ dict(a=1)['a'] }}{{ strftime_now('%d %b %Y') }}{{ tools is defined and tools }}"""


def test_a_chat_has_the_text_that_transformers_gives_it(smollm2_fields):
    compiled = pytest.importorskip("transformers.utils.chat_template_utils",
                                   reason="needs requirements/peers.txt")
    names = {"bos_token": "<s>", "eos_token": "</s>"}
    for text in (SAMPLE, smollm2_fields["tokenizer.chat_template"]):
        for messages in (CHAT, CHAT[1:2]):
            [expected], _ = compiled.render_jinja_template(
                [messages], chat_template=text, add_generation_prompt=True, **names)
            assert chat_template.render(text, messages, names) == expected


def test_a_chat_of_the_real_model_has_its_special_tokens(smollm2_fields):
    encoder = tokens_of_gguf(smollm2_fields, "a.gguf")
    text = encoder.chat_text([{"role": "user", "content": "Hi"}])
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    ids = encoder.encode_bytes(text.encode())
    begin, end = encoder.id_of("<|im_start|>"), encoder.id_of("<|im_end|>")
    assert ids.count(begin) == 3 and ids.count(end) == 2 and encoder.end_tokens == {end}
    # each special token stands alone, so a text without them is the text between them
    assert encoder.decode(ids) == text.replace("<|im_start|>", "").replace("<|im_end|>", "")


@pytest.mark.parametrize("template, why", [
    ("{{ ''.__class__.__mro__ }}", "attribute '__class__' of 'str' object is unsafe"),
    ("{{ namespace(__init__=1) }}", "__init__ begins with an underscore"),
    ("{% set n = namespace() %}{% set n._a = 1 %}", "_a begins with an underscore"),
    ("{{ dict.mro() }}", "has no attribute 'mro'"),
    ("{{ messages.append(1) }}", "'append' of 'list' object is unsafe"),
    ("{{ 'a' * 10**11 }}", "MemoryError"),
    ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
    ("{{ raise_exception('no <role>') }}", "no <role>"),
    ("{% if %}", "Expected an expression")])
def test_a_template_that_fails_or_attacks_is_one_sentence(template, why):
    with pytest.raises(ValueError, match=rf"^the chat template does not take .*: .*{why}[^\n]*$"):
        chat_template.render(template, CHAT, {})


def test_a_template_without_an_end_is_ended(monkeypatch):
    monkeypatch.setattr(chat_template, "SECONDS", 0.5)
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(ValueError, match="^the chat template did not end within 0.5 s$"):
        chat_template.render(loop, CHAT, {})


@pytest.mark.parametrize("version", ["3.1.5", "3.1rc9", "2.11.3", PackageNotFoundError])
def test_a_jinja_whose_sandbox_has_holes_is_refused(version, monkeypatch):
    monkeypatch.setattr(chat_template.metadata, "version", mock.Mock(side_effect=[version]))
    with pytest.raises(ValueError, match="a chat needs the package jinja2, 3.1.6 or later: pip"):
        chat_template.render("", CHAT, {})


def test_messages_of_another_form_are_refused():
    encoder = tokens_of_gguf(small_fields("gpt-2") | {"tokenizer.chat_template": ""}, "a.gguf")
    assert encoder.chat_text(CHAT) == ""
    for messages in ([], "ab", [{"role": "user"}], ["ab"], None, {}):
        with pytest.raises(ValueError, match='need messages .{"role": .., "content": ..}'):
            encoder.chat_text(messages)
