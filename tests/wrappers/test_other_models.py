"""Test main.py on folders that are not GPT-2, which run in transformers."""

import json

import pytest

pytest.importorskip("torch", reason="needs requirements/peers.txt")
transformers = pytest.importorskip("transformers", reason="needs requirements/peers.txt")

import numpy as np  # noqa: E402

import main  # noqa: E402
from sampling import with_sampling  # noqa: E402
from speculative import autoregressive_sampling  # noqa: E402
from tests.commands import refusal, run_main  # noqa: E402
from tests.wrappers.families import random_model, torch  # noqa: E402
from utils import MODELS_DIR, load_model  # noqa: E402
from wrappers.transformers_model import TransformersModel  # noqa: E402

N_TOKENS = 4096  # of the bundled tokenizer; the models have four rows more
SHORT = ("--prompt", "One day", "--n_tokens_to_generate", 8)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return the folder of a random Qwen3 and a random Llama with the bundled tokenizer."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODELS_DIR / "tales-small")
    made = {}
    for seed, name in enumerate(("qwen3", "llama")):
        folder = tmp_path_factory.mktemp(name)
        model = random_model(name, torch.float32, seed, vocab_size=N_TOKENS + 4)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        made[name] = str(folder)
    return made


def json_of(*flags):
    """Return what main.py --json prints; transformers shows its bars on standard error."""
    status, out, err = run_main("--json", *flags)
    assert status == 0, err
    return json.loads(out)


def flags_of(folders, *more):
    """Return the flags that choose the Llama as the draft and the Qwen3 as the target."""
    return ("--draft_model_size", folders["llama"], "--target_model_size", folders["qwen3"],
            *SHORT, *more)


@pytest.mark.parametrize("decoder", ["speculative", "tree", "stopping"])
def test_a_decoder_writes_the_targets_own_greedy_text(folders, decoder):
    run = json_of(*flags_of(folders, "--decoder", decoder, "--dtype", "float64"))
    tokenizer, target = load_model(folders["qwen3"], dtype="float64")
    x = tokenizer.encode("One day")
    rows = with_sampling(target, temperature=0)
    alone = autoregressive_sampling(x, rows, 8, np.random.default_rng(0))
    assert isinstance(target, TransformersModel) and target.n_vocab == N_TOKENS
    assert run[decoder]["ids"] == alone[len(x) :] and run["identical"]
    assert run["product"].startswith("PyTorch")


def test_a_draft_of_another_kind_and_a_gpt2_through_transformers(folders):
    run = json_of("--draft_model_size", "tales-small", "--target_model_size",
                      folders["qwen3"], *SHORT)
    assert run["identical"]
    ours = json_of(*SHORT, "--dtype", "float64")
    theirs = json_of(*SHORT, "--dtype", "float64", "--backend", "transformers")
    assert theirs["speculative"]["ids"] == ours["speculative"]["ids"]
    assert theirs["product"] != ours["product"]


def test_many_prompts_have_the_text_of_each_alone(folders, tmp_path):
    (tmp_path / "prompts").write_text("One day\nA king", encoding="utf-8")
    status, _, _ = run_main(*flags_of(folders)[:4], "--dtype", "float64",
                            "--n_tokens_to_generate", 8, "--prompts", tmp_path / "prompts",
                            "--out", tmp_path / "out")
    lines = (tmp_path / "out").read_text(encoding="utf-8").splitlines()
    first, second = map(json.loads, lines)
    alone = json_of(*flags_of(folders, "--dtype", "float64"))
    assert status == 0 and first["ids"] == alone["speculative"]["ids"] != second["ids"]


@pytest.mark.parametrize("decoder, needed", [
    (name, "weights") for name in ("skip", "quantized", "medusa", "markov", "eagle")])
def test_a_decoder_that_reads_weights_is_refused_before_anything_is_loaded(
        folders, decoder, needed, monkeypatch):
    monkeypatch.setattr("wrappers.transformers_model.TransformersModel", None)  # nobody may call it
    own = ("--target_model_size", folders["qwen3"], *SHORT)
    message = refusal(main.main, *own, "--decoder", decoder)
    assert f"--decoder {decoder} needs" in message and needed in message


def test_a_dtype_of_transformers_is_refused_for_numpy():
    message = refusal(main.main, *SHORT, "--dtype", "bfloat16")
    assert "--dtype bfloat16 needs --backend transformers" in message
