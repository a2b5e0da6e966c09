"""Models as Hugging Face keeps them: written, read back, equal in transformers, or refused."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from lib.checkpoints import huggingface
from lib.checkpoints.weights import flatten, random_params
from encoder import Encoder, byte_characters
from gpt2 import GPT2
from sampling import with_sampling
from speculative import autoregressive_sampling, speculative_sampling
from tools.export_hf import export
from utils import MODELS_DIR, load_encoder_hparams_and_params

ROOT = Path(__file__).parents[2]
HPARAMS = dict(n_vocab=258, n_ctx=16, n_embd=12, n_head=3, n_layer=2)
SYMBOLS = [*byte_characters().values(), "ab", "<|endoftext|>"]
TINY = Encoder({symbol: id for id, symbol in enumerate(SYMBOLS)}, [("a", "b")])


def tiny(folder, dtype=np.float32, seed=0):
    """A model folder of a few kilobytes, and its weights."""
    params = random_params(HPARAMS, np.random.default_rng(seed), dtype)
    export(folder, TINY, HPARAMS, params)
    return params


def load(folder, dtype=np.float32):
    return load_encoder_hparams_and_params(str(folder), MODELS_DIR, dtype)


@pytest.fixture
def folder(tmp_path):
    tiny(tmp_path / "tiny")
    return tmp_path / "tiny"


def equal(a, b):
    a, b = dict(flatten(a)), dict(flatten(b))
    return a.keys() == b.keys() and all((a[name] == b[name]).all() for name in a)


# ---- there and back

@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_what_was_written_is_read_back_bit_by_bit(tmp_path, dtype):
    params = tiny(tmp_path / "tiny", dtype)
    encoder, hparams, loaded = load(tmp_path / "tiny", dtype)
    assert hparams == HPARAMS and equal(loaded, params) and loaded["wte"].dtype == dtype
    assert encoder.vocab == TINY.vocab and encoder.ranks == TINY.ranks


def test_projections_lie_as_gpt2_wants_them(folder):
    assert load(folder)[2]["blocks"][0]["mlp"]["c_fc"]["w"].T.flags.c_contiguous


def test_a_folder_of_this_kind_in_models_dir_needs_its_name_only(folder):
    assert load_encoder_hparams_and_params("tiny", folder.parent)[1] == HPARAMS


def rewrite(folder, change):
    """model.safetensors anew, with its {name: array} changed."""
    weights = {huggingface.their_name(name): weight for name, weight in flatten(load(folder)[2])}
    weights = {f"transformer.{name}": weight for name, weight in weights.items()}
    with open(folder / "model.safetensors", "wb") as file:
        huggingface.write_weights(file, change(weights))


def test_openais_own_upload_has_no_prefix_and_masks_among_its_weights(folder):
    """huggingface.co/openai-community/gpt2: wte.weight, h.0.attn.bias [1, 1, n_ctx, n_ctx]."""
    before = load(folder)[2]
    rewrite(folder, lambda weights: {name.removeprefix("transformer."): array
                                     for name, array in weights.items()}
            | {"h.0.attn.bias": np.zeros((1, 1, 16, 16), np.float32),
               "lm_head.weight": weights["transformer.wte.weight"]})
    assert equal(load(folder)[2], before)


def test_bfloat16_is_read(folder):
    path, before = folder / "model.safetensors", load(folder)[2]
    length = int.from_bytes(path.read_bytes()[:8], "little")
    header, data = json.loads(path.read_bytes()[8 : 8 + length]), path.read_bytes()[8 + length :]
    header.pop("__metadata__")
    for entry in header.values():
        entry["dtype"], entry["data_offsets"] = "BF16", [n // 2 for n in entry["data_offsets"]]
    text = json.dumps(header).encode()
    half = np.frombuffer(data, "<u2")[1::2].tobytes()  # the upper half of a float32
    path.write_bytes(len(text).to_bytes(8, "little") + text + half)
    for (_, was), (_, now) in zip(flatten(before), flatten(load(folder)[2])):
        np.testing.assert_allclose(now, was, rtol=2**-7)
        assert (now.view(np.uint32) & 0xFFFF == 0).all()


def test_the_file_is_as_the_format_says(folder):
    """github.com/huggingface/safetensors, "Format": read here by hand."""
    data, tree = (folder / "model.safetensors").read_bytes(), dict(flatten(load(folder)[2]))
    start = 8 + int.from_bytes(data[:8], "little")
    entries = json.loads(data[8:start])
    assert entries.pop("__metadata__") == {"format": "pt"} and len(entries) == len(tree)
    for name, weight in tree.items():
        entry = entries[f"transformer.{huggingface.their_name(name)}"]
        begin, end = entry["data_offsets"]
        numbers = np.frombuffer(data[start + begin : start + end], "<f4")
        assert (entry["dtype"], entry["shape"]) == ("F32", [*weight.shape])
        assert (numbers.reshape(weight.shape) == weight).all()


def run(*args):
    return subprocess.run([sys.executable, *map(str, args)], cwd=ROOT, capture_output=True,
                          timeout=120)


def test_the_command_lines(tmp_path):
    folder = tmp_path / "small"
    done = run("-m", "tools.export_hf", "tales-small", folder)
    assert done.returncode == 0 and b"model.safetensors" in done.stdout, done.stderr
    flags = ("main.py", "--n_tokens_to_generate", 5, "--draft_model_size")
    assert b"\nText = identical\n" in run(*flags, folder).stdout
    done = run("-m", "tools.export_hf", "no-such-model", folder)
    assert done.returncode == 1 and done.stderr.count(b"\n") == 1


# ---- the same in transformers

def transformers_with_torch():
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.set_num_threads(1)  # two that spin for each other are far slower on a busy machine
    return torch, transformers


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The bundled pair as Hugging Face folders."""
    folder = tmp_path_factory.mktemp("exported")
    for name in ("tales-small", "tales-large"):
        export(folder / name, *load_encoder_hparams_and_params(name, MODELS_DIR))
    return folder


@cache
def theirs(folder):
    torch, transformers = transformers_with_torch()
    return transformers.AutoModelForCausalLM.from_pretrained(folder).double().eval()


@pytest.mark.filterwarnings("default")  # theirs
def test_transformers_loads_it_and_gives_our_logits(exported):
    torch, _ = transformers_with_torch()
    for name in ("tales-small", "tales-large"):
        _, hparams, params = load(exported / name, np.float64)
        ids = np.random.default_rng(0).integers(0, hparams["n_vocab"], 50).tolist()
        with torch.no_grad():
            logits = theirs(exported / name)(torch.tensor([ids])).logits[0].numpy()
        ours = GPT2(params, hparams["n_head"])(ids, 50)
        np.testing.assert_allclose(ours, logits, rtol=0, atol=1e-9)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("text", ["Once upon a time", "it's 42!\n\n  ok", "wïzard 語🙂\t",
                                  "a" * 99])
def test_transformers_tokenizer_gives_our_ids(exported, text):
    _, transformers = transformers_with_torch()
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported / "tales-large")
    encoder = load(exported / "tales-large")[0]
    assert tokenizer(text)["input_ids"] == encoder.encode(text)
    assert tokenizer.decode(encoder.encode(text)) == text
    assert tokenizer.eos_token_id == encoder.end_of_text


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("opening", ["Once upon a time there was a", "The king said"])
def test_greedy_text_is_that_of_transformers_assisted_generation(exported, opening):
    torch, _ = transformers_with_torch()
    encoder, hparams, params = load(exported / "tales-large", np.float64)
    _, small_hparams, small_params = load(exported / "tales-small", np.float64)
    target, draft = (with_sampling(GPT2(p, h["n_head"]), temperature=0)
                     for p, h in ((params, hparams), (small_params, small_hparams)))
    x, N = encoder.encode(opening), 40
    with torch.no_grad():
        ids = theirs(exported / "tales-large").generate(
            torch.tensor([x]), assistant_model=theirs(exported / "tales-small"), do_sample=False,
            max_new_tokens=N, min_new_tokens=N, pad_token_id=0)[0].tolist()
    rng = np.random.default_rng(0)
    assert ids == speculative_sampling(x, draft, target, N, 4, rng)
    assert ids == autoregressive_sampling(x, target, N, rng)


@pytest.mark.filterwarnings("default")
def test_what_transformers_saves_is_read(tmp_path):
    torch, transformers = transformers_with_torch()
    tiny(tmp_path)  # for the tokenizer's files
    config = transformers.GPT2Config(vocab_size=258, n_positions=16, n_embd=12, n_head=3,
                                     n_layer=2)
    model = transformers.GPT2LMHeadModel(config).eval()
    model.save_pretrained(tmp_path)
    _, hparams, params = load(tmp_path)
    ids = [1, 2, 3, 4, 257]
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].numpy()
    np.testing.assert_allclose(GPT2(params, hparams["n_head"])(ids, 5), logits, rtol=0, atol=1e-5)


# ---- weights in several files, in half precision, with a padded vocabulary

def shard(folder, drop_prefix=False):
    """The weights in three files and an index, as transformers' max_shard_size leaves them."""
    weights = {name.removeprefix("transformer.") if drop_prefix else name: array
               for name, array in stored(folder).items()}
    weight_map = {}
    for i, name in enumerate(sorted(weights)):
        weight_map[name] = f"model-{1 + i % 3:05}-of-00003.safetensors"
    for file in set(weight_map.values()):
        with open(folder / file, "wb") as out:
            huggingface.write_weights(out, {name: weights[name] for name in weights
                                            if weight_map[name] == file})
    (folder / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def stored(folder):
    """{transformers' name: array} of a folder."""
    named = flatten(load(folder)[2])
    return {f"transformer.{huggingface.their_name(name)}": array for name, array in named}


@pytest.mark.parametrize("drop_prefix", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_sharded_weights_are_those_of_one_file(folder, dtype, drop_prefix):
    rewrite(folder, lambda weights: {name: array.astype(dtype) for name, array in weights.items()})
    whole = load(folder)[2]
    shard(folder, drop_prefix)
    assert huggingface.is_model(folder) and equal(load(folder)[2], whole)


@pytest.mark.parametrize("change, words", [
    (lambda index: index.pop("weight_map") and None, "weight_map"),
    (lambda index: index["weight_map"].update(x="../../weights.safetensors"), "names of"),
    (lambda index: index["weight_map"].update(x=["model"]), "names of")])
def test_an_index_that_names_no_neighbours_is_refused(folder, change, words):
    shard(folder)
    index = json.loads((folder / huggingface.INDEX).read_text())
    change(index)
    (folder / huggingface.INDEX).write_text(json.dumps(index))
    with pytest.raises(ValueError, match=words):
        load(folder)


def test_a_file_that_the_index_names_must_be_there_and_hold_each_weight_once(folder):
    shard(folder)
    first, second = sorted(folder.glob("model-*"))[:2]
    data = second.read_bytes()
    second.write_bytes(first.read_bytes())
    with pytest.raises(ValueError, match="each weight once"):
        load(folder)
    second.unlink()
    with pytest.raises(FileNotFoundError, match=second.name):
        load(folder)
    second.write_bytes(data)
    load(folder)


def test_a_padded_vocabulary_is_named_and_cut_if_asked(tmp_path):
    """nanoGPT's 50,304 rows for 50,257 tokens."""
    padded = HPARAMS | {"n_vocab": 264}
    export(tmp_path, TINY, padded, random_params(padded, np.random.default_rng(0), np.float32))
    with pytest.raises(ValueError, match="padded by 6, which --cut_vocab leaves out"):
        load(tmp_path)
    _, hparams, params = load_encoder_hparams_and_params(str(tmp_path), MODELS_DIR, cut_vocab=True)
    assert hparams == HPARAMS and params["wte"].shape == (258, 12)
    assert GPT2(params, hparams["n_head"])([1, 2], 2).shape == (2, 258)


def test_a_vocabulary_that_is_too_small_is_never_cut(tmp_path):
    small = HPARAMS | {"n_vocab": 250}
    export(tmp_path, TINY, small, random_params(small, np.random.default_rng(0), np.float32))
    with pytest.raises(ValueError, match="as many symbols") as caught:
        load_encoder_hparams_and_params(str(tmp_path), MODELS_DIR, cut_vocab=True)
    assert "padded" not in str(caught.value)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_engines_are_told_the_context_and_the_precision(tmp_path, dtype):
    """Without n_ctx llama.cpp's converter stops, without a dtype engines cast to half precision."""
    export(tmp_path, TINY, HPARAMS, random_params(HPARAMS, np.random.default_rng(0), np.float32),
           np.dtype(dtype))
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["n_ctx"] == config["n_positions"] == HPARAMS["n_ctx"]
    assert config["dtype"] == config["torch_dtype"] == dtype
    generation = json.loads((tmp_path / "generation_config.json").read_text())
    assert generation["eos_token_id"] == config["eos_token_id"] == TINY.end_of_text


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("text", ["Once upon a time", "it's 42!\n\n  ok", "wïzard 語🙂\t"])
def test_tokenizer_json_alone_gives_our_ids(exported, text):
    tokenizers = pytest.importorskip("tokenizers")
    theirs = tokenizers.Tokenizer.from_file(str(exported / "tales-large" / "tokenizer.json"))
    encoder = load(exported / "tales-large")[0]
    assert theirs.encode(text).ids == encoder.encode(text)
    assert theirs.decode(theirs.encode(text).ids) == text


# ---- what can be wrong with such a folder

def header(change):
    """model.safetensors with its header changed, and its length with it."""
    def edit(folder):
        path = folder / "model.safetensors"
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        entries = json.loads(data[8 : 8 + length])
        text = change(entries) or json.dumps(entries).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    return edit


def entry(name="transformer.wpe.weight", **changes):
    return header(lambda entries: entries[name].update(changes))


def raw(change):
    def edit(folder):
        path = folder / "model.safetensors"
        path.write_bytes(change(path.read_bytes()))
    return edit


def config(**changes):
    def edit(folder):
        values = json.loads((folder / "config.json").read_text()) | changes
        (folder / "config.json").write_text(json.dumps(values))
    return edit


def weights(change):
    return lambda folder: rewrite(folder, lambda tree: change(tree) or tree)


WPE, PART = "transformer.wpe.weight", "whole safetensors file"
TWICE = '"a": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}, '
FAULTS = {
    "file empty": (raw(lambda data: b""), "bytes of weights"),
    "file of 7 bytes": (raw(lambda data: data[:7]), "bytes of weights"),
    "header longer than the file": (raw(lambda data: b"\xff" * 8 + data[8:]), PART),
    "header no JSON": (raw(lambda data: data[:8] + b"\x00" + data[9:]), PART),
    "header a list": (header(lambda entries: b"[]"), PART),
    "header with a name twice": (header(lambda entries: json.dumps(entries).replace(
        "{", "{" + 2 * TWICE, 1).encode()), "twice"),
    "header of deep brackets": (header(lambda entries: b"[" * 100_000), PART),
    "an entry without shape": (header(lambda entries: entries[WPE].pop("shape") and None), PART),
    "an entry that is text": (header(lambda entries: entries.update({WPE: "x"})), PART),
    "a dtype that nobody knows": (entry(dtype="X" * 10**6 + "\n"), PART),
    "a dtype that NumPy lacks": (header(lambda entries: [
        entry.update(dtype="F8_E4M3", shape=[4, *entry["shape"]])
        for name, entry in entries.items() if name != "__metadata__"] and None), "F8_E4M3"),
    "a dtype that is a list": (entry(dtype=[]), PART),
    "integers": (entry(dtype="I32"), "floating-point"),
    "a negative size": (entry(shape=[-16, -12]), PART),
    "a size that is true": (entry(shape=[True, 192]), PART),
    "sizes whose product is absurd": (entry(shape=[2**40, 2**40]), PART),
    "a thousand axes": (entry(shape=[16, 12] + [1] * 1000), "one or two axes"),
    "offsets after the file": (entry(data_offsets=[10**9, 10**9 + 768]), PART),
    "offsets that overlap": (entry(data_offsets=[0, 768]), PART),
    "offsets reversed": (entry(data_offsets=[768, 0]), PART),
    "three offsets": (entry(data_offsets=[0, 1, 2]), PART),
    "data cut": (raw(lambda data: data[:-4]), PART),
    "data too long": (raw(lambda data: data + b"\0"), PART),
    "another shape of the same size": (entry(shape=[12, 16]), "shape"),
    "a weight missing": (weights(lambda tree: tree.pop(WPE) is None), "too many or too few"),
    "a weight too many": (weights(lambda tree: tree.update(extra=tree[WPE])), "too many or too"),
    "a weight not finite": (weights(lambda tree: tree.update({WPE: tree[WPE] * np.inf})), "finite"),
    "config of another model": (config(model_type="llama"), "model_type"),
    "config of another activation": (config(activation_function="relu"), "activation_function"),
    "config of another epsilon": (config(layer_norm_epsilon=1e-6), "layer_norm_epsilon"),
    "config with untied embeddings": (config(tie_word_embeddings=False), "tie_word_embeddings"),
    "config of another width": (config(n_inner=13), "n_inner"),
    "config whose width is text": (config(n_embd="12"), "n_embd|n_inner"),
    "config of absurd sizes": (config(n_positions=10**9), "n_ctx"),
    "config larger than the file": (config(n_positions=2**14, n_embd=1200, n_head=1),
                                    "bytes of weights"),
    "config without sizes": (config(vocab_size=None), "n_vocab"),
    "config of more layers": (config(n_layer=3), "too many or too few|bytes of weights"),
    "another vocabulary": (config(vocab_size=259), "as many symbols"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.filterwarnings("ignore:invalid value")  # inf * 0, made here
def test_a_broken_folder_is_one_clear_error(folder, fault):
    edit, words = FAULTS[fault]
    edit(folder)
    with pytest.raises(ValueError, match=words) as caught:
        load(folder)
    assert len(str(caught.value)) < 1000 and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt"])
def test_a_tokenizer_file_that_is_missing_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        load(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_path_to_a_folder_without_them_is_refused(folder, name):
    (folder / name).unlink()
    with pytest.raises(ValueError, match="not a path"):
        load(folder)


def test_an_export_that_is_interrupted_is_no_model(tmp_path, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("tools.export_hf.tokenizer_config", interrupt)
    with pytest.raises(KeyboardInterrupt):
        tiny(tmp_path / "tiny")
    assert not huggingface.is_model(tmp_path / "tiny")
