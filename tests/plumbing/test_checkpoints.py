"""Checkpoints: real ones by TensorFlow, a real HTTP server, and everything that can be wrong."""

import json
import os
import shutil
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from lib.backend.arrays import get_backend
from lib.checkpoints import download
from lib.checkpoints.converted import load_params
from lib.checkpoints.openai import CHECKPOINT, TEXTS, convert, read_hparams
from lib.checkpoints.weights import n_params, random_params
from gpt2 import GPT2
from tests.checkpoints import HPARAMS, random_weights, write_checkpoint, write_model
from utils import load_encoder_hparams_and_params

pytest.importorskip("tensorflow")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """models/tiny as OpenAI would ship it, and its weights."""
    folder = tmp_path_factory.mktemp("original") / "tiny"
    return folder, write_model(folder)


@pytest.fixture
def models(original, tmp_path):
    """A fresh copy of it."""
    shutil.copytree(original[0], tmp_path / "tiny")
    return tmp_path


def by_name(params):
    """The tree of weights under OpenAI's names."""
    flat = {"model/wte": params["wte"], "model/wpe": params["wpe"]}
    for part in "gb":
        flat[f"model/ln_f/{part}"] = params["ln_f"][part]
    for i, block in enumerate(params["blocks"]):
        for name in ("ln_1", "ln_2"):
            flat |= {f"model/h{i}/{name}/{part}": block[name][part] for part in "gb"}
        for name in ("attn", "mlp"):
            for layer, weights in block[name].items():
                flat |= {f"model/h{i}/{name}/{layer}/{part}": weights[part] for part in "wb"}
    return flat


def test_loading_through_tensorflow_gives_bit_equal_parameters(models, original):
    _, hparams, params = load_encoder_hparams_and_params("tiny", models)
    loaded, weights = by_name(params), original[1]
    assert hparams == HPARAMS and loaded.keys() == weights.keys()
    for name, weight in weights.items():
        assert loaded[name].dtype == np.float32
        assert (loaded[name] == weight.reshape(loaded[name].shape)).all(), name


def test_projections_lie_transposed_in_memory(models):
    _, _, params = load_encoder_hparams_and_params("tiny", models)
    assert params["blocks"][0]["mlp"]["c_fc"]["w"].T.flags.c_contiguous


def test_the_second_load_needs_no_tensorflow_and_no_checkpoint(models):
    first = load_encoder_hparams_and_params("tiny", models)[2]
    for name in CHECKPOINT:
        (models / "tiny" / name).unlink()
    code = ("import sys, utils; utils.load_encoder_hparams_and_params('tiny', sys.argv[1]); "
            "sys.exit('tensorflow' in sys.modules)")
    subprocess.run([sys.executable, "-c", code, str(models)], check=True, cwd=ROOT)
    second = load_encoder_hparams_and_params("tiny", models)[2]
    assert all((a == b).all() for a, b in zip(by_name(first).values(), by_name(second).values()))


@pytest.mark.parametrize("disk, memory", [(np.float16, np.float32), (np.float32, np.float64)])
def test_numbers_on_disk_may_have_another_precision_than_in_memory(models, original, disk, memory):
    convert(models / "tiny", disk)
    params = load_encoder_hparams_and_params("tiny", models, memory)[2]
    wte = original[1]["model/wte"].astype(disk)
    assert params["wte"].dtype == memory and (params["wte"] == wte.astype(memory)).all()


def test_a_loaded_model_runs(models):
    encoder, hparams, params = load_encoder_hparams_and_params("tiny", models)
    assert GPT2(params, hparams["n_head"])(encoder.encode("hello"), 5).shape == (5, 257)


# ---- downloads, from a real server on this machine

class Handler(SimpleHTTPRequestHandler):
    """Serves a folder; the dict `faults` of the server says what to do wrong for which file."""

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.server.requests.append(self.path)
        fault = self.server.faults.get(self.path.split("/")[-1])
        if fault == "cut":
            data = Path(self.translate_path(self.path)).read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2])
        elif fault:
            self.send_error(fault)
        else:
            super().do_GET()


@pytest.fixture
def server(original, monkeypatch):
    """Serves the original folder as the released size 124M."""
    root = original[0].parent
    if not (root / "124M").exists():
        shutil.copytree(original[0], root / "124M")
    handler = lambda *args: Handler(*args, directory=str(root))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.faults, server.requests = {}, []
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("GPT2_BASE_URL", f"http://127.0.0.1:{server.server_port}")
    yield server
    server.shutdown()
    server.server_close()


def test_a_released_size_is_downloaded_converted_and_loaded(server, original, tmp_path):
    _, _, params = load_encoder_hparams_and_params("124M", tmp_path)
    assert (params["wpe"] == original[1]["model/wpe"]).all()
    assert sorted(server.requests) == sorted(f"/124M/{n}" for n in CHECKPOINT + TEXTS)
    load_encoder_hparams_and_params("124M", tmp_path)
    assert len(server.requests) == 7  # nothing twice


@pytest.mark.parametrize("name", ["model.ckpt.data-00000-of-00001", "encoder.json"])
@pytest.mark.parametrize("fault", ["cut", 404, 500])
def test_a_failed_download_leaves_nothing_half_written_and_can_be_repeated(
        server, tmp_path, name, fault, monkeypatch):
    monkeypatch.setattr(download, "WAITS", (0.01,))
    server.faults[name] = fault
    with pytest.raises(OSError):
        load_encoder_hparams_and_params("124M", tmp_path)
    left = [path.name for path in tmp_path.rglob("*")]
    assert name not in left and ".lock" not in left
    assert name + ".part" not in left or fault == "cut"  # kept only where data came
    server.faults.clear()
    assert load_encoder_hparams_and_params("124M", tmp_path)[1] == HPARAMS


def test_without_a_network_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("GPT2_BASE_URL", "http://127.0.0.1:9")  # the discard port: nobody listens
    with pytest.raises(OSError):
        load_encoder_hparams_and_params("124M", tmp_path)
    assert list(tmp_path.iterdir()) == []


# ---- what can be wrong with a folder

def edit_hparams(**changes):
    def edit(folder):
        hparams = json.loads((folder / "hparams.json").read_text()) | changes
        (folder / "hparams.json").write_text(json.dumps(hparams))
    return edit


def truncate(name):
    def edit(folder):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: len(data) // 2])
    return edit


def rewrite(**changes):
    def edit(folder):
        weights = random_weights(HPARAMS, np.random.default_rng(0))
        for name, value in changes.items():
            weights[f"model/{name}"] = value
        write_checkpoint(folder, weights)
    return edit


def save_params(array):
    return lambda folder: np.save(folder / "params.npy", array)


N_PARAMS = n_params(HPARAMS)
FAULTS = {
    "a size is missing": (edit_hparams(n_layer=None), "n_layer"),
    "a size is text": (edit_hparams(n_ctx="16"), "n_ctx"),
    "a size is zero": (edit_hparams(n_head=0), "n_head"),
    "a size is absurd": (edit_hparams(n_ctx=10**12), "1 .. 16384"),
    "a size beyond 64 bits": (edit_hparams(n_embd=10**400), "n_embd"),
    "a size is infinite": (edit_hparams(n_layer=float("inf")), "n_layer"),
    "a size is no whole number": (edit_hparams(n_layer=2.0), "n_layer"),
    "a size is true": (edit_hparams(n_layer=True), "n_layer"),
    "sizes absurd together": (edit_hparams(n_ctx=2**14, n_layer=2**10, n_embd=12 * 2**10),
                              "bytes for weights and cache"),
    "sizes larger than the files": (edit_hparams(n_ctx=2**14), "bytes of weights"),
    "heads do not divide": (edit_hparams(n_head=5), "n_head to divide"),
    "another vocabulary": (edit_hparams(n_vocab=258), "as many symbols"),
    "more layers than weights": (edit_hparams(n_layer=3), "need"),
    "another context length": (edit_hparams(n_ctx=15), "shape"),
    "index cut": (truncate("model.ckpt.index"), "whole TensorFlow checkpoint"),
    "data cut": (truncate("model.ckpt.data-00000-of-00001"), "bytes of weights"),
    "a weight of another shape": (rewrite(wpe=np.zeros((16, 13), np.float32)), "shape"),
    "a weight not finite": (rewrite(wpe=np.full((16, 12), np.nan, np.float32)), "finite"),
    "array file cut": (lambda folder: (save_params(np.zeros(N_PARAMS, np.float32))(folder),
                                       truncate("params.npy")(folder)), "whole array file"),
    "array file empty": (lambda folder: (folder / "params.npy").write_bytes(b""), "whole array"),
    "array too long": (save_params(np.zeros(N_PARAMS + 1, np.float32)), "floating-point numbers"),
    "array of integers": (save_params(np.zeros(N_PARAMS, np.int32)), "floating-point numbers"),
    "pickled objects": (save_params(np.array([{}], dtype=object)), "floating-point numbers"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_folder_is_one_clear_error_and_leaves_no_params(models, fault):
    edit, message = FAULTS[fault]
    edit(models / "tiny")
    before = set((models / "tiny").iterdir())
    with pytest.raises(ValueError, match=message):
        load_encoder_hparams_and_params("tiny", models)
    assert set((models / "tiny").iterdir()) == before


def tail(change):
    """A good params.npy with its bytes changed."""
    def edit(folder):
        convert(folder)
        path = folder / "params.npy"
        path.write_bytes(change(path.read_bytes()))
    return edit


def npy(header, version=b"\x01\x00"):
    """params.npy with a header of one's own and no numbers."""
    data = b"\x93NUMPY" + version + len(header).to_bytes(2, "little") + header
    return lambda folder: (folder / "params.npy").write_bytes(data)


def header(n):
    """The header of n numbers, as NumPy writes it."""
    return f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({n},), }}\n".encode()


def flip(data, i, bit=0):
    i %= len(data)
    return data[:i] + bytes([data[i] ^ 1 << bit]) + data[i + 1 :]


def replaced(make):
    """params.npy, made by `make(path)` into something that is no file."""
    return lambda folder: make(folder / "params.npy")


ARRAY_FAULTS = {
    "no array": (tail(lambda data: data + bytes(1)), "whole array file"),
    "checksum cut": (tail(lambda data: data[:-1]), "whole array file"),
    "checksum of nothing": (tail(lambda data: data[:-16] + bytes(16)), "another checksum"),
    "first bit of the numbers": (tail(lambda data: flip(data, 128)), "another checksum"),
    "a bit in the middle": (tail(lambda data: flip(data, 14_000, 7)), "another checksum"),
    "last bit of the numbers": (tail(lambda data: flip(data, -17)), "another checksum"),
    "a bit of the checksum": (tail(lambda data: flip(data, -1)), "another checksum"),
    "a bit of the header": (tail(lambda data: flip(data, 70)), "need"),
    "a block of zeros": (tail(lambda data: data[:4096] + bytes(4096) + data[8192:]), "checksum"),
    "fortran order": (npy(header("7068").replace(b"False", b"True")), "numbers"),
    "two axes": (save_params(np.zeros((2, 3534), np.float32)), "floating-point numbers"),
    "no axis": (save_params(np.float32(0)), "floating-point numbers"),
    "an absurd shape": (npy(header("1000000000000000000")), "need"),
    "a negative shape": (npy(header("-1")), "need"),
    "a promised length": (npy(header("7068")), "whole"),
    "a header of code": (npy(b"__import__('os').system('touch /tmp/owned')\n"), "numbers"),
    "a header of brackets": (npy(b"(" * 9000 + b"\n"), "numbers"),
    "a huge header": (npy(header("7069")[:-1] + b" " * 60_000 + b"\n"), "numbers"),
    "a header of a later version": (npy(b"{}", b"\x03\x00"), "whole array file"),
    "big-endian": (save_params(np.zeros(N_PARAMS, ">f4")), "floating-point numbers"),
    "complex": (save_params(np.zeros(N_PARAMS, np.complex64)), "floating-point numbers"),
    "bytes": (save_params(np.zeros(N_PARAMS, "S4")), "floating-point numbers"),
    "a zip archive": (lambda folder: (np.savez(folder / "a.npz", a=1), os.replace(
        folder / "a.npz", folder / "params.npy")), "whole array file"),
    "NaN among the numbers": (save_params(np.full(N_PARAMS, np.nan, np.float32)), "finite"),
    "inf among the numbers": (save_params(np.append(np.zeros(N_PARAMS - 1), np.inf)), "finite"),
    "-inf among the numbers": (save_params(np.append(np.zeros(N_PARAMS - 1), -np.inf)), "finite"),
    "too large for float32": (save_params(np.full(N_PARAMS, 1e300)), "finite"),
    "a folder": (replaced(Path.mkdir), "plain file"),
    "a pipe": (replaced(os.mkfifo), "plain file"),
    "a device": (replaced(lambda path: path.symlink_to("/dev/zero")), "plain file"),
}
TEXT_FAULTS = {
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a device": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "larger than memory": lambda path: os.truncate(path, 2**40),
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(1000)),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:9]),
}


@pytest.mark.parametrize("fault", ARRAY_FAULTS)
def test_a_broken_array_file_is_one_clear_error(models, fault):
    edit, message = ARRAY_FAULTS[fault]
    edit(models / "tiny")
    with pytest.raises(ValueError, match=message):
        load_encoder_hparams_and_params("tiny", models)
    assert not Path("/tmp/owned").exists()


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("fault", TEXT_FAULTS)
def test_a_broken_text_file_is_one_clear_error(models, name, fault):
    if name == "vocab.bpe" and fault in ("empty", "cut"):
        pytest.skip("no merges are a vocabulary too")
    TEXT_FAULTS[fault](models / "tiny" / name)
    with pytest.raises(ValueError, match="need"):
        load_encoder_hparams_and_params("tiny", models)


def test_every_flipped_bit_is_noticed_or_does_no_harm(models):
    """Any bit of params.npy: an error, or the very same weights (spaces of the header)."""
    convert(models / "tiny")
    path, hparams = models / "tiny" / "params.npy", read_hparams(models / "tiny")
    data = path.read_bytes()
    weights = load_params(models / "tiny", hparams)["wte"].copy()
    for i in [*range(128), *range(128, len(data), 977), *range(len(data) - 20, len(data))]:
        path.write_bytes(flip(data, i, i % 8))
        try:
            same = load_params(models / "tiny", hparams)["wte"]
        except ValueError:
            continue
        assert i < 128 and (same == weights).all()


def test_an_array_file_without_checksum_is_read(models, original):
    """As NumPy alone writes it."""
    convert(models / "tiny")
    flat = np.load(models / "tiny" / "params.npy")
    np.save(models / "tiny" / "params.npy", flat)
    params = load_encoder_hparams_and_params("tiny", models)[2]
    assert (params["wpe"] == original[1]["model/wpe"]).all()


def test_the_list_beside_a_checkpoint_leads_nowhere_else(models, original):
    """TensorFlow's own file `checkpoint` may name any path; it is not asked."""
    (models / "tiny" / "checkpoint").write_text('model_checkpoint_path: "/etc/passwd"\n')
    params = load_encoder_hparams_and_params("tiny", models)[2]
    assert (params["wpe"] == original[1]["model/wpe"]).all()


@pytest.mark.parametrize("name", ["params.npy", ".lock"])
def test_a_conversion_writes_through_no_link(models, name):
    victim = models / "victim"
    victim.write_bytes(b"precious")
    (models / "tiny" / name).symlink_to(victim)
    with pytest.raises((ValueError, OSError)):
        load_encoder_hparams_and_params("tiny", models)
    assert victim.read_bytes() == b"precious"
    convert(models / "tiny")
    assert victim.read_bytes() == b"precious"


CONVERT = """
import sys, time
import numpy as np
import utils
from lib.checkpoints import openai
weights, convert = np.load(sys.argv[2]), utils.convert
openai.open_checkpoint = lambda folder, n_bytes: lambda name: weights[f"model/{name}"]
def convert_slowly(folder):
    print("converts", flush=True)
    time.sleep(0.5)
    convert(folder)
utils.convert = convert_slowly
utils.load_encoder_hparams_and_params("tiny", sys.argv[1])
print("loaded")
"""


def start_conversion(models):
    """A process that converts, its weights from an archive: TensorFlow takes seconds to start."""
    return subprocess.Popen([sys.executable, "-c", CONVERT, models, models / "weights.npz"],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def test_two_conversions_at_once_and_one_that_is_killed_end_with_one_good_file(models, original):
    np.savez(models / "weights.npz", **original[1])
    killed = start_conversion(models)
    killed.stdout.readline()
    others = [start_conversion(models) for _ in range(2)]
    killed.kill()
    killed.communicate()
    said = [process.communicate(timeout=120) for process in others]
    assert sorted(out for out, _ in said) == ["converts\nloaded\n", "loaded\n"], said
    names = {path.name for path in (models / "tiny").iterdir()}
    assert names == {*TEXTS, *CHECKPOINT, "params.npy"}
    params = load_encoder_hparams_and_params("tiny", models)[2]
    assert (params["wpe"] == original[1]["model/wpe"]).all()


@pytest.mark.parametrize("name", [
    "../tiny", "/etc", "", "a/b", "..", "nowhere", "125M", "tiny\0", "a" * 300, "tiny/", "./tiny",
    "C:\\tiny", "~", "-", ".lock", "tiny\n", "\udcff"])
def test_a_name_that_is_no_model_is_refused(models, name):
    with pytest.raises(ValueError, match="need"):
        load_encoder_hparams_and_params(name, models / "elsewhere")
    assert not (models / "elsewhere").exists()


def test_without_tensorflow_the_error_says_what_to_install(models, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(ValueError, match="pip install tensorflow"):
        load_encoder_hparams_and_params("tiny", models)


def test_the_cupy_backend_without_cupy_or_gpu_says_what_is_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ValueError, match="need CuPy"):
        get_backend("cupy")
    with pytest.raises(ValueError, match="numpy or cupy"):
        get_backend("jax")


def test_random_params_have_the_true_shapes():
    weights = random_weights(HPARAMS, np.random.default_rng(0))
    params = by_name(random_params(HPARAMS, np.random.default_rng(0)))
    assert {name: array.size for name, array in params.items()} == {
        name: array.size for name, array in weights.items()}
    assert abs(params["model/ln_f/g"].mean() - 1) < 0.1 > abs(params["model/wte"].mean())
