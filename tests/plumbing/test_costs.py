"""The file that keeps what --K auto measured: a good one is used, any other is no error."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import lib.demo.costs
from lib.demo.compare import decode
from lib.demo.costs import cache_folder, find_path, read, write
from lib.demo.task import Task
from exact.toys import toy
from tests.variants.registered import Logits
from variants.auto import K_MAX, Costs

COSTS = Costs(0.2, [1.0 + K / 4 for K in range(K_MAX + 1)])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECULATIVE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def model(seed=0, dtype="float32"):
    toy_model = Logits(toy(5, seed, zeros=0))
    toy_model.cache = np.zeros(1, dtype)
    return toy_model


@pytest.fixture
def task(tmp_path):
    """A run of two toys that claim to be from files."""
    for name in ("draft", "target"):
        (tmp_path / name).write_bytes(name.encode())
    return Task(encoder=None, x=[1], stop=set(), new_draft=model, new_target=lambda: model(1),
                heads=None, sampling=dict(temperature=1.0, top_k=0, top_p=1.0,
                                          repetition_penalty=1.0),
                decoder="speculative", settings={"K": "auto"}, N=300, seed=0, n_ctx=1024,
                window=False, files=(tmp_path / "target", tmp_path / "draft"))


def test_the_next_run_knows_what_the_first_one_measured(task, folder):
    first, second = decode(task, "speculative"), decode(task, "speculative")
    assert first.auto.known is None and second.auto.known is not None
    assert second.auto.measuring.seconds == 0 < first.auto.measuring.seconds
    assert len(list(folder.iterdir())) == 1 and second.auto.known == read(second.auto.path)


def test_the_best_tree_is_chosen_by_the_same_costs(task):
    chain = decode(task, "speculative")
    task = task._replace(decoder="tree", settings={"widths": "auto", "siblings": "auto"})
    tree = decode(task._replace(N=100), "tree")
    assert tree.auto.known == read(chain.auto.path) and len(tree.ids) == 100
    assert len(tree.auto.chosen) == len(tree.rounds) and max(tree.auto.chosen) <= K_MAX


def test_the_file_is_of_these_models_this_kind_of_array_and_these_settings(task, monkeypatch):
    path = find_path(task, model())
    assert path == find_path(task, model()) == find_path(
        task._replace(sampling=task.sampling | dict(temperature=0.5)), model())
    others = [find_path(task, model(dtype="float64")),
              find_path(task._replace(files=task.files[:1]), model()),
              find_path(task._replace(sampling=task.sampling | dict(temperature=0)), model()),
              find_path(task._replace(sampling=task.sampling | dict(top_p=0.9)), model())]
    monkeypatch.setattr(lib.demo.costs.products, "name", lambda: "another product")
    others.append(find_path(task, model()))
    monkeypatch.undo()
    monkeypatch.setattr(lib.demo.costs.platform, "node", lambda: "another machine")
    others.append(find_path(task, model()))
    monkeypatch.undo()
    os.utime(task.files[0], ns=(1, 1))
    others.append(find_path(task, model()))
    assert len({path.name, *(other.name for other in others)}) == 8


def test_models_from_no_files_keep_nothing(task, folder):
    for files in ((), (Path("no-such-file"),)):
        assert find_path(task._replace(files=files), model()) is None
        assert decode(task._replace(files=files), "speculative").auto.known is None
    assert not folder.exists()


def test_costs_are_read_as_they_were_written(folder):
    write(folder / "auto-x.json", COSTS)
    assert read(folder / "auto-x.json") == COSTS
    assert [path.name for path in folder.iterdir()] == ["auto-x.json"]


GOOD = COSTS._asdict()


@pytest.mark.parametrize("data", [
    b"", b"{", b"\xff", b"[]", b"null", b"1", b"[" * 100_000, json.dumps(GOOD).encode()[:-9],
    *(json.dumps(GOOD | bad).encode() for bad in (
        {"c": None}, {"c": float("nan")}, {"c": float("inf")}, {"c": 0}, {"c": -1.0},
        {"c": [1]}, {"pass_cost": []}, {"pass_cost": 3}, {"pass_cost": [1.0] * K_MAX},
        {"pass_cost": [1.0] * (K_MAX + 2)}, {"pass_cost": [0.0] * (K_MAX + 1)}))],
    ids=lambda data: repr(data[:40]))
def test_a_damaged_file_is_measured_anew_and_replaced(data, task, folder):
    path = find_path(task, model())
    folder.mkdir()
    path.write_bytes(data)
    assert read(path) is None
    assert decode(task, "speculative").auto.known is None
    assert read(path) is not None


@pytest.mark.parametrize("block", [
    lambda folder: folder.write_text("a file where the folder should be"),
    lambda folder: folder.symlink_to("nowhere/at/all"),
    lambda folder: folder.symlink_to(folder)])
def test_a_folder_that_cannot_be_is_no_error(block, task, folder):
    block(folder)
    assert len(decode(task, "speculative").ids) == 300


def test_a_folder_in_the_place_of_the_file_is_no_error(task, folder):
    find_path(task, model()).mkdir(parents=True)
    assert len(decode(task, "speculative").ids) == 300
    assert [path.is_dir() for path in folder.iterdir()] == [True]


def test_each_system_has_its_folder():
    home = Path(os.path.expanduser("~"))
    assert cache_folder({}, "linux") == home / ".cache" / "speculative-decoding"
    assert cache_folder({"XDG_CACHE_HOME": "/x"}, "linux") == Path("/x/speculative-decoding")
    assert cache_folder({}, "darwin") == home / "Library" / "Caches" / "speculative-decoding"
    assert cache_folder({"LOCALAPPDATA": "/l"}, "win32") == Path("/l/speculative-decoding")
    assert cache_folder({"SPECULATIVE_CACHE_DIR": "/own"}, "win32") == Path("/own")


def test_a_run_of_another_decoder_keeps_nothing(task, folder):
    other = task._replace(settings={"K": 2})
    assert decode(other, "speculative").auto is None and not folder.exists()
