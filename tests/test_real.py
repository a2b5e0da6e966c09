"""benchmarks/real.py: its prompts, its figures by hand, and the command on a toy."""

from collections import Counter
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

from benchmarks import real
from benchmarks.__main__ import main
from measure.passes import Run, Timed
from speculative import Round
from tests.commands import outcome
from tests.small import lively_params
from variants.shared.tree_gpt2 import TreeGPT2

HPARAMS = dict(n_vocab=12, n_ctx=64, n_embd=64, n_head=2, n_layer=2)
STOP = 3


def toy():
    """Return what `load` does: an encoder of which only the ends are asked, a target, prompts."""
    target = TreeGPT2(lively_params(HPARAMS, dtype=np.float32), 2)
    prompts = [("question", [1, 2, 4]), ("code", [5, 6, 5, 6, 5])]
    return SimpleNamespace(end_tokens={STOP}), target, prompts


def test_the_prompts_are_two_of_each_kind():
    """The kinds of the questions from which heads are trained."""
    pytest.importorskip("gguf", reason="needs requirements/llama.txt")
    tokens = mock.Mock(has_chats=True, chat_text=lambda chat: chat[0]["content"],
                       encode_bytes=list)
    with mock.patch.object(real, "load_model", lambda name: (tokens, toy()[1])):
        _, _, prompts = real.load()
    assert Counter(kind for kind, _ in prompts) == dict.fromkeys(
        ("question", "list", "story", "code", "summary", "rewrite"), 2)
    assert len({bytes(ids) for _, ids in prompts}) == 12


def written(n, seconds, n_rounds=2):
    """Return a text of n tokens after a first round of one token, which takes 1 s."""
    rounds = [Round([1], [], None, None, 0)] * n_rounds
    each = seconds / 2
    return Run(Timed(None, [each / 2]), Timed(None, [each], [1] * n_rounds), [1] * (n + 1), rounds,
               1 + seconds, 1.0, 1)


def test_a_speed_up_is_the_median_of_the_prompts_and_of_each_prompts_repeats():
    """Plain decoding writes a token per second; ours 1, 2 and 3 of the first prompt."""
    plain = [[written(6, 6.0), written(6, 6.0), written(6, 6.0)]] * 3
    ours = [[written(6, 6.0 / n), written(6, 1.5), written(6, 0.75)] for n in (1, 2, 3)]
    row = real.row_figures(ours, plain, ("list", "code", "code"), temperature=0)
    assert row["speedup"] == {"median": 4, "low": 2, "high": 8}
    assert row["by_kind"] == {"list": 2, "code": 6} and row["tokens_per_s"] == 4
    assert (row["draft"], row["target"], row["same"]) == (0.25, 0.5, "3 of 3")


def test_a_text_of_one_round_has_no_rate_and_does_not_count():
    plain = [[written(6, 6.0), written(6, 6.0)]] * 2
    ended = written(0, 0.0, n_rounds=1)
    row = real.row_figures([[ended, ended], [written(6, 3.0), ended]], plain, ("list", "code"), 0)
    assert row["speedup"] == {"median": 2, "low": 2, "high": 2} and row["by_kind"]["list"] == 2
    assert np.isnan(row["by_kind"]["code"]) and row["tokens_per_s"] == 2


def test_a_program_is_compared_on_each_prompt_after_its_first_token(monkeypatch):
    """The end of a text, which some programs leave out, does not count as a difference."""
    texts = {"plain": [9, 9, STOP], "same": [9, 9], "other": [9, 8, STOP]}
    monkeypatch.setattr(real, "ours", lambda model, stop: lambda x, N: (texts["plain"], 4.0))
    engines = {name: lambda target, stop, name=name: lambda x, N: (texts[name], 1.0)
               for name in ("same", "other")}
    engines["absent"] = mock.Mock(side_effect=ValueError("no such package"))
    monkeypatch.setattr(real, "ENGINES", engines)
    monkeypatch.setattr(real, "rounding", lambda *args: None)
    part = real.engine_figures((None, None), toy()[2], {STOP}, SimpleNamespace(N=2))
    rows = part["rows"]
    assert part["skipped"] == {"absent": "no such package"}
    assert rows["same"]["speedup"]["median"] == 2 and rows["other"]["speedup"]["median"] == 4
    assert [rows[name]["same"] for name in ("same", "other")] == ["2 of 2", "0 of 2"]


def test_a_copys_distance_is_the_mean_divergence_of_the_rows_after_the_prompts():
    """Rows p = (1/2, 1/4, 1/4) and q = (1/4, 1/2, 1/4) at two of three positions, else equal."""
    p, q = np.log([[2, 1, 1]] * 3), np.log([[1, 2, 1], [2, 1, 1], [1, 2, 1]])
    models = [lambda text, n_last, rows=rows: rows[-n_last:] for rows in (q, p)]
    got = real.rounding(models, [[0, 1, 0, 1]], [[0, 1]])
    assert got == pytest.approx({"divergence": np.log(2) / 4 * 2 / 3, "best": 1 / 3})


def test_what_the_command_measures_it_shows_again(tmp_path, monkeypatch):
    monkeypatch.setattr(real, "load", toy)
    monkeypatch.setattr(real, "ENGINES", {})
    path = tmp_path / "figures.json"
    words = ("real", "--N", 20, "--temperature", 0)
    status, measured, _ = outcome(main, *words, "--json", path)
    assert (status, measured) == outcome(main, "real", "--show", path)[:2]
    assert status == 0 and "| quantized --K 5 |" in measured and "lenient --K 4 (lossy)" in measured
    assert "Not measured: eagle" in measured and "were not trained for this target" in measured
