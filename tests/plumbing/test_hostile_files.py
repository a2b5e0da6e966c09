"""A file of a stranger's model loads, or is refused in one line that names its folder.

Each entry of each JSON file becomes every value of VALUES, and each file every text of TEXTS.
"""

import json
from functools import partial

import numpy as np
import pytest

from lib.checkpoints.huggingface import write_folder
from lib.checkpoints.weights import check_hparams, random_params
from tests.checkpoints import HPARAMS, TINY, TINY_HPARAMS, write_converted
from tests.llamas import write_llama
from tests.plumbing.test_huggingface import with_tokenizer_json
from utils import MODELS_DIR, load_pair

DEEP = "[" * 100_000 + "]" * 100_000
# as they are written in JSON, because Python writes neither DEEP nor a number of 400 digits
VALUES = ["null", "true", "-1", "0", "1.5", "NaN", "Infinity", "1e999", "9" * 8, "1" + "0" * 30,
          "9" * 400, "9" * 5000, '""', '"x"', r'"\ud800"', "[]", "[1]", '["a"]', "{}", '{"a": 1}',
          DEEP, '{"a":' * 100_000]
FEW = ["-1", "9" * 8, "1" + "0" * 30, '"x"', "[1]", '{"a": 1}', r'"\ud800"', DEEP]
TEXTS = [b"", b"{", b"[]", b"3", b'"x"', b"null", b"{}", b"\0", b"\xff\xfe", b'\xef\xbb\xbf{}',
         '{"é": 1}'.encode("latin-1"), "{}".encode("utf-16"), b'{"a": 1e999}', DEEP.encode()]
PLACE = "the place of a value"


def write_gpt2(folder, change=lambda folder: None):
    """Write a GPT-2 as transformers does, with a config of its texts, and change it."""
    params = random_params(TINY_HPARAMS, np.random.default_rng(0))
    write_folder(folder, TINY, TINY_HPARAMS, params)
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


def hostile(text, keys=()):
    """Yield the texts that replace the text of a JSON file; with `keys` few values of these."""
    yield from TEXTS
    found = json.loads(text)
    for replaced in [found | {key: PLACE} for key in keys] or places(found):
        before, after = json.dumps(replaced).split(json.dumps(PLACE))
        for value in FEW if keys else VALUES:
            yield f"{before}{value}{after}".encode()


def n_refused(path, texts, size):
    """Return how many texts of a file are refused, each in a line that names the folder.

    Or that says how much memory is missing.
    """
    found = path.read_bytes()
    n = 0
    for text in texts:
        path.write_bytes(text)
        try:
            load_pair(None, size, path.parents[1])
        except (ValueError, MemoryError) as error:
            n += 1
            words = str(error)
            assert words and "\n" not in words and len(words) < 700, (text[:200], words)
            is_named = path.parent.name in words or isinstance(error, MemoryError)
            assert is_named, (text[:200], words)
    path.write_bytes(found)
    return n


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
    texts = hostile((folder / name).read_text("utf-8"))
    assert n_refused(folder / name, texts, size) > len(TEXTS)


THEIRS = {  # keys of the files that transformers writes
    "config.json": ["model_type", "hidden_size", "hidden_act", "num_hidden_layers",
                    "num_attention_heads", "max_position_embeddings", "vocab_size", "dtype"],
    "generation_config.json": ["eos_token_id"],
    "tokenizer.json": ["added_tokens", "model", "decoder", "pre_tokenizer"],
    "tokenizer_config.json": ["tokenizer_class", "eos_token", "model_max_length"]}


@pytest.mark.filterwarnings("ignore")  # of PyTorch, about layers without a weight
def test_a_folder_of_transformers_is_read_or_refused_in_one_line(tmp_path):
    """A random Llama with the bundled tokenizer, whose last tokens it has no rows for."""
    transformers = pytest.importorskip("transformers", reason="needs requirements/peers.txt")
    folder = write_llama(tmp_path / "hostile", "llama")
    transformers.AutoTokenizer.from_pretrained(MODELS_DIR / "tales-small").save_pretrained(folder)
    (folder / "generation_config.json").write_text('{"eos_token_id": 1}', "utf-8")
    n = sum(n_refused(folder / name, hostile((folder / name).read_text("utf-8"), keys), str(folder))
            for name, keys in THEIRS.items())
    assert n > 100


@pytest.mark.parametrize("name", HPARAMS)
def test_a_size_beyond_every_model_is_refused_before_its_weights_are_listed(name):
    for size in (10**9, 10**30, 10**400):
        with pytest.raises(ValueError, match=f"need {name} to be a whole number in 1 .. 10+ in x, "
                                             "got 10+"):
            check_hparams(HPARAMS | {name: size}, "x")
