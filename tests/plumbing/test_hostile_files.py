"""A file of a stranger's model loads, or is refused in one line that names its folder.

Each entry of each JSON file becomes every value of VALUES, and each file every text of TEXTS.
"""

import json
from functools import partial

import numpy as np
import pytest

from lib.checkpoints.huggingface import write_folder
from lib.checkpoints.weights import check_hparams, random_params
from tests.checkpoints import HPARAMS, TINY, write_converted
from tests.plumbing.test_huggingface import with_tokenizer_json
from utils import MODELS_DIR, load_pair

DEEP = "[" * 100_000 + "]" * 100_000
# as they are written in JSON, because Python writes neither DEEP nor a number of 400 digits
VALUES = ["null", "true", "-1", "0", "1.5", "NaN", "Infinity", "1e999", "9" * 8, "1" + "0" * 30,
          "9" * 400, "9" * 5000, '""', '"x"', r'"\ud800"', "[]", "[1]", '["a"]', "{}", '{"a": 1}',
          DEEP, '{"a":' * 100_000]
TEXTS = [b"", b"{", b"[]", b"3", b'"x"', b"null", b"{}", b"\0", b"\xff\xfe", b'\xef\xbb\xbf{}',
         '{"é": 1}'.encode("latin-1"), "{}".encode("utf-16"), b'{"a": 1e999}', DEEP.encode()]
PLACE = "the place of a value"


def write_gpt2(folder, change=lambda folder: None):
    """Write a GPT-2 as transformers does, with a config of its texts, and change it."""
    hparams = HPARAMS | {"n_vocab": TINY.n_vocab}
    write_folder(folder, TINY, hparams, random_params(hparams, np.random.default_rng(0)))
    (folder / "generation_config.json").write_text('{"eos_token_id": [257]}', "utf-8")
    change(folder)


def places(value, depth=3):
    """Yield a copy of a JSON value for each entry in it, with PLACE instead of the entry."""
    entries = [*(value.items() if isinstance(value, dict) else enumerate(value))]
    if len(entries) > 20:  # a vocabulary, whose first symbols stand for all
        entries = entries[:3]
    for key, entry in entries:
        may_hold = depth > 1 and isinstance(entry, dict | list)
        for replaced in (PLACE, *(places(entry, depth - 1) if may_hold else ())):
            copied = value.copy()
            copied[key] = replaced
            yield copied


def hostile(text):
    """Yield the texts that replace the text of a JSON file."""
    yield from TEXTS
    for replaced in places(json.loads(text)):
        before, after = json.dumps(replaced).split(json.dumps(PLACE))
        for value in VALUES:
            yield f"{before}{value}{after}".encode()


def assert_is_one_line_about(folder, error, case):
    """Assert that an error is a line that names the folder, or says how much memory is missing."""
    words = str(error)
    assert words and "\n" not in words and len(words) < 700, (case, words)
    assert folder.name in words or isinstance(error, MemoryError), (case, words)


@pytest.fixture(autouse=True)
def no_warnings_of_transformers(caplog):
    """They repeat surrogates, which xdist cannot send."""
    caplog.set_level("CRITICAL", "transformers")


@pytest.mark.parametrize("write, name", [
    (write_gpt2, "config.json"), (write_gpt2, "generation_config.json"),
    (write_gpt2, "vocab.json"), (write_gpt2, "added_tokens.json"),
    (partial(write_gpt2, change=with_tokenizer_json), "tokenizer.json"),
    (write_converted, "hparams.json"), (write_converted, "encoder.json")],
    ids=lambda value: value if isinstance(value, str) else "")
def test_a_json_file_is_read_or_refused_in_one_line(write, name, tmp_path):
    folder = tmp_path / "hostile"
    write(folder)
    size = "hostile" if write is write_converted else str(folder)
    n_refused = 0
    for text in hostile((folder / name).read_text("utf-8")):
        (folder / name).write_bytes(text)
        try:
            load_pair(None, size, tmp_path)
        except (ValueError, MemoryError) as error:
            n_refused += 1
            assert_is_one_line_about(folder, error, text[:200])
    assert n_refused > len(TEXTS)


def write_llama(folder):
    """Write a random Llama with the bundled tokenizer, as transformers does."""
    from transformers import AutoTokenizer

    from tests.wrappers.families import random_model, torch

    random_model("llama", torch.float32, vocab_size=4096).save_pretrained(folder)
    AutoTokenizer.from_pretrained(MODELS_DIR / "tales-small").save_pretrained(folder)


THEIRS = [(name, key, value) for name, keys in {
    "config.json": ["model_type", "hidden_size", "hidden_act", "num_hidden_layers",
                    "num_attention_heads", "max_position_embeddings", "vocab_size", "dtype"],
    "generation_config.json": ["eos_token_id"],
    "tokenizer.json": ["added_tokens", "model", "decoder", "pre_tokenizer"],
    "tokenizer_config.json": ["tokenizer_class", "eos_token", "model_max_length"]}.items()
    for key in keys for value in ["0", "-1", '"x"', "[1]", '{"a": 1}', r'"\ud800"', DEEP]]


@pytest.mark.filterwarnings("ignore")  # of PyTorch, about layers without a weight
def test_a_folder_of_transformers_is_read_or_refused_in_one_line(tmp_path, monkeypatch, capfd):
    pytest.importorskip("torch", reason="needs requirements/peers.txt")
    folder = tmp_path / "hostile"
    write_llama(folder)
    n_refused = 0
    for name, key, value in THEIRS + [
            (name, None, text) for name in {name for name, *_ in THEIRS}
            for text in ("", "[]", "null", "3", "{", '"x"', DEEP)] + [
            ("config.json", "num_hidden_layers", str(n)) for n in (10**7, 10**30)]:
        found = (folder / name).read_bytes()
        changed = value
        if key:
            before, after = json.dumps(json.loads(found) | {key: PLACE}).split(json.dumps(PLACE))
            changed = f"{before}{value}{after}"
        (folder / name).write_text(changed, "utf-8")
        try:
            load_pair(None, str(folder))
        except (ValueError, MemoryError) as error:
            n_refused += 1
            assert_is_one_line_about(folder, error, (name, key, value[:20]))
        (folder / name).write_bytes(found)
    assert n_refused > 100


@pytest.mark.parametrize("name", HPARAMS)
def test_a_size_beyond_every_model_is_refused_before_its_weights_are_listed(name):
    for size in (10**9, 10**30, 10**400):
        with pytest.raises(ValueError, match=f"need {name} to be a whole number in 1 .. 10+ in x, "
                                             "got 10+"):
            check_hparams(HPARAMS | {name: size}, "x")
