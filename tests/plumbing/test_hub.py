"""Models named owner/name: fetched once from a hub on this machine, then read without a network.

The stand-in answers what the package huggingface_hub asks: the version, its files, each file.
"""

import hashlib
import json
import shutil
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from lib.checkpoints import hub
from tests.checkpoints import files_in

huggingface_hub = pytest.importorskip("huggingface_hub", reason="needs requirements/peers.txt")
VERSION = "0123456789abcdef0123456789abcdef01234567"
INDEX = json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors",
                                   "b": "model-00002-of-00002.safetensors"}}).encode()
MODEL = {"config.json": b'{"model_type": "qwen3"}', "tokenizer.json": b"{}",
         "model.safetensors.index.json": INDEX, "model-00001-of-00002.safetensors": b"first",
         "model-00002-of-00002.safetensors": b"second"}
OTHERS = {"modeling_mine.py": b"raise SystemExit", "pytorch_model.bin": b"pickle",
          "consolidated.safetensors": b"again", "original/model.safetensors": b"again"}


class StandIn(BaseHTTPRequestHandler):
    """Answer as a hub with the models of the server."""

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.wfile.write(self.answer())

    def answer(self):
        """Send the head of the answer to a path, or of status 404; return its body."""
        self.server.asked.append(self.path)
        path = self.path.partition("?")[0].removeprefix("/api/models")
        _, owner, name, kind, *rest = path.split("/")
        model = f"{owner}/{name}"
        files = self.server.models.get(model)
        headers = {"X-Repo-Commit": VERSION}
        status = 200
        if files is None:
            status = 404
            headers["X-Error-Code"] = "RepoNotFound"
            body = b'{"error": "Repository not found"}'
        elif kind == "revision":
            body = json.dumps({"id": model, "sha": VERSION, "siblings": []}).encode()
        elif kind == "tree":
            body = json.dumps([{"type": "file", "path": file, "size": len(data), "oid": file}
                               for file, data in files.items()]).encode()
        else:  # resolve/VERSION/file
            body = files["/".join(rest[1:])]
            headers["ETag"] = f'"{hashlib.sha256(body).hexdigest()}"'
        self.send_response(status)
        for header, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(header, value)
        self.end_headers()
        return body

    def log_message(self, *args):
        """Print nothing."""


@pytest.fixture
def server():
    """Yield a hub with `models`, {name: {file: bytes}}; `asked` lists the paths of its requests."""
    with ThreadingHTTPServer(("127.0.0.1", 0), StandIn) as server:
        server.models, server.asked = {}, []
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def folder_of(tmp_path, monkeypatch):
    """Return a function: what model_folder returns, or its message, with this hub or with none."""
    huggingface_hub.close_session()  # a session keeps its proxies
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    constants = huggingface_hub.constants
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def folder_or_message(name, server=None):
        port = server.server_port if server else 9  # nobody listens on port 9
        hub_url = f"http://127.0.0.1:{port}"
        files = hub_url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", hub_url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", files)
        try:
            return hub.model_folder(name)
        except ValueError as error:
            return str(error)

    return folder_or_message


def test_a_model_is_fetched_once_without_code_and_pickles_and_a_lost_part_again(
        server, folder_of, tmp_path, monkeypatch):
    server.models["mine/model"] = MODEL | OTHERS
    fetched = folder_of("mine/model", server)
    assert files_in(fetched) == MODEL
    assert not any(file in path for path in server.asked for file in OTHERS)
    server.asked.clear()
    assert folder_of("mine/model", server) == fetched and server.asked == []
    # A part is lost, and its name too, as transformers keeps no list of the files.
    (fetched / "model-00002-of-00002.safetensors").unlink()
    listing, = tmp_path.rglob("trees")
    shutil.rmtree(listing)
    # The package remembers a list by its path.
    moved = (tmp_path / "hub").rename(tmp_path / "moved")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(moved))
    assert "the hub's copy of 'mine/model' lacks" in folder_of("mine/model")
    assert files_in(folder_of("mine/model", server)) == MODEL


def test_what_the_hub_does_not_have_is_one_sentence(server, folder_of):
    server.models["mine/pickle"] = {"config.json": b"{}", "pytorch_model.bin": b"pickle"}
    assert ("the hub's copy of 'mine/pickle' lacks config.json or files of model*.safetensors"
            in folder_of("mine/pickle", server))
    assert ("cannot be fetched: RepositoryNotFoundError: 404 Client Error"
            in folder_of("mine/model", server))


def test_without_a_network_the_refusal_comes_in_seconds(folder_of):
    start = time.monotonic()
    assert folder_of("mine/model").startswith(
        "'mine/model' is not a folder, and the hub's model of this name cannot be fetched: Connect")
    assert time.monotonic() - start < 30  # the retries of transformers take 50


def test_a_folder_here_comes_before_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine" / "model").mkdir(parents=True)
    assert hub.model_folder("mine/model") == Path("mine/model")
    with pytest.raises(ValueError, match="no such folder: ./mine/other"):
        hub.model_folder("./mine/other")


@pytest.mark.parametrize("index, words", [
    (b"{}", "need a weight_map in .*index.json, got None"),
    (b'{"weight_map": ["a"]}', "need a weight_map in .*index.json, got .'a'.")])
def test_an_index_without_the_files_of_the_weights_is_named(index, words, tmp_path):
    for name, data in (MODEL | {"model.safetensors.index.json": index}).items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=words):
        hub.is_complete(tmp_path)
