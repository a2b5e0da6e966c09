"""Test models/training/smollm2 on a toy Llama: what it writes, what it learns, what it exports."""

import json
import os
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)
pytest.importorskip("transformers", exc_type=ImportError)

from llama import Llama  # noqa: E402  after what may skip
from models.training.smollm2 import head as training  # noqa: E402
from models.training.smollm2 import prompts, write  # noqa: E402
from tests.llamas import llama_params  # noqa: E402
from tests.pages import ROOT  # noqa: E402
from tests.toys import tree_of  # noqa: E402
from variants import Models  # noqa: E402
from variants.shared.eagle_head import Head, load_head  # noqa: E402
from variants.shared.states import States  # noqa: E402

torch.set_num_threads(1)
END = 12


class Characters:
    """Encode each character of a prompt as one of 12 tokens; the text END ends a text."""

    end_tokens = {END}

    def chat_text(self, messages):
        return f"<{messages[0]['content']}>"

    def encode(self, text):
        return [ord(character) % END for character in text[:7]]

    def decode(self, ids):
        return ". ".join(map(str, ids))


@pytest.fixture
def model():
    return Llama(llama_params(dtype=np.float32, n_ctx=64), 4)


@pytest.fixture
def texts(model, tmp_path):
    with mock.patch.multiple(write, N_TEXTS=6, N_NEW=20, N_SHARD=8, LONGEST_PROMPT=16,
                             LENGTHS_OF_PASSAGES=(5, 50)):
        write.write_answers(Characters(), model, tmp_path / "answers", 400, seed=1)
    return training.load_texts(sorted((tmp_path / "answers").glob("*.npz")))


def test_the_answers_and_states_are_the_models(texts, model):
    """Of each text alone. A greedy answer has the model's best tokens, up to its end."""
    assert {text["temperature"] for text in texts} == {0.0, 0.7}
    fresh = model.fresh()
    for text in texts:
        ids, n_prompt = text["ids"].tolist(), text["n_prompt"]
        assert np.allclose(text["h"], fresh.hidden(ids, len(ids)), rtol=1e-2, atol=1e-2)
        assert END not in ids[n_prompt:-1] and len(ids) - n_prompt <= 20
        assert ids[-1] == END or len(ids) - n_prompt == 20
        if text["temperature"] == 0:
            best = fresh(ids[:-1], len(ids) - n_prompt).argmax(axis=1)
            assert best.tolist() == ids[n_prompt:]


def test_the_largest_random_number_draws_a_token_of_the_vocabulary():
    rng = mock.Mock(random=lambda shape: np.full(shape, np.nextafter(1, 0)))
    assert write.draw(np.array([[0, 1, -np.inf]], np.float32), rng) == [1]


def test_a_stopped_writer_goes_on_with_the_next_shard(texts, model, tmp_path):
    before = {path: path.read_bytes() for path in (tmp_path / "answers").iterdir()}
    with mock.patch.multiple(write, N_TEXTS=6, N_NEW=20, N_SHARD=8, LONGEST_PROMPT=16):
        write.write_answers(Characters(), model, tmp_path / "answers", 400, seed=1)
        assert {path: path.read_bytes() for path in before} == before
        assert len([*(tmp_path / "answers").iterdir()]) == len(before)  # it was done
        write.write_answers(Characters(), model, tmp_path / "answers", 800, seed=1)
    assert len([*(tmp_path / "answers").iterdir()]) > len(before)


def test_training_and_test_share_no_topic_no_task_and_no_template():
    known, held_out = prompts.PARTS["training"], prompts.PARTS["held_out"]
    for name in ("topics", "tasks"):
        assert not {*known[name]} & {*held_out[name]}
    for kind in prompts.PARTS["shares"]:
        assert not {*known["templates"][kind]} & {*held_out["templates"][kind]}


def test_the_head_learns_resumes_and_the_decoder_reads_what_was_exported(
        texts, model, tmp_path):
    with mock.patch.multiple(training, N_KEPT=10, BATCH=128, SAVE_SECONDS=0):
        head = training.new_head(model, texts)
        held_out = texts[:6]  # a few, because the head is measured after every step
        training.train_head(head, texts, held_out, tmp_path / "head.pt", 4000)
        first, *_, last = map(json.loads, (tmp_path / "head.pt.log").read_text().splitlines())
        assert last["train_loss"] < 0.8 * first["train_loss"] and last["agree"] > first["agree"]

        again = training.new_head(model, texts)
        # Nothing is left to do.
        training.train_head(again, texts, held_out, tmp_path / "head.pt", 4000)
    for name, weight in head.w.items():
        assert (again.w[name] == weight).all()
        weight.data = weight.data.half().float()  # as on disk

    training.export_head(head, tmp_path)
    loaded = load_head(Models(None, model, {}, tmp_path))
    states = States(model)
    ids = next(text["ids"] for text in texts if len(text["ids"]) > 20)[:20]
    x, chain = ids[:17].tolist(), tree_of(ids[17:].tolist(), [-1, 0, 1])
    rows = Head(loaded, model, states.states_of)(x + chain, 4)
    h = torch.from_numpy(model.fresh().hidden(ids.tolist(), 20))
    padded_ids = torch.from_numpy(np.append(ids, 0))[None]
    # Row 15 has the state at token 15 and token 16, which is the last one of x.
    for s, states_of_step in enumerate(head.predicted(padded_ids, h[None], 4)):
        logits = (states_of_step[0, 15 + s] @ head.unembed.T).detach().numpy()
        assert np.allclose(rows[s][head.keep], logits, rtol=1e-4, atol=1e-4)
        assert set(np.flatnonzero(rows[s] > -1e9)) == set(head.keep.tolist())


def test_tokens_per_pass_are_those_of_the_walk():
    hits = np.array([[1, 1, 1, 0, 1, 0], [1, 1, 0, 0, 0, 1]], bool)
    # Token 0 is the prompt's pass. Guesses for 1 and 2: token 1 is right, 2 is not (hits[1, 2]).
    # Then guesses for 3: wrong. Then for 4 and 5: both right.
    assert training.walked(hits, 2) == (5, 3)


STAND_IN = """
import utils
from llama import Llama
from tests.llamas import llama_params

utils.load_model = lambda name: (None, Llama(llama_params(dtype="float32", n_ctx=64), 4))
"""


def test_the_command_goes_on_with_what_is_written_and_exports(tmp_path):
    """Its writing processes start, and find enough answers. All load a toy for SmolLM2."""
    (tmp_path / "sitecustomize.py").write_text(STAND_IN, "utf-8")  # Python runs it as it starts
    ids, states = list(range(9)), [np.ones((9, 16), np.float32)]
    for folder, seed in ("answers", 1), ("held_out", 0):
        (tmp_path / folder).mkdir()
        write.save_answers(tmp_path / folder / f"{seed}-00000.npz", [
            write.Text("question", temperature, 4, ids, states) for temperature in (0.0, 0.7)])
    subprocess.run([sys.executable, "-m", "models.training.smollm2", "--work", tmp_path,
                    "--tokens", "1", "--read", "1", "--processes", "1"], check=True, cwd=ROOT,
                   env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"})
    assert (tmp_path / "heads.safetensors").exists()
