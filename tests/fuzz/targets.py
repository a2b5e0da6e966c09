"""What is fuzzed: functions of bytes that return, whatever the bytes, or else have found a bug."""

import atexit
import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np

import main
from encoder import Encoder, byte_characters
from lib.checkpoints.files import read_json
from lib.checkpoints.openai import write_params
from lib.checkpoints.weights import check_hparams, flatten, n_params, random_params
from lib.demo.compare import compare
from lib.vocabulary import read_merges
from tools.export_hf import export
from utils import load_encoder_hparams_and_params

HPARAMS = dict(n_vocab=258, n_ctx=8, n_embd=4, n_head=2, n_layer=1)
SYMBOLS = [*byte_characters().values(), "ab", "<|endoftext|>"]
TINY = Encoder({symbol: id for id, symbol in enumerate(SYMBOLS)}, [("a", "b")])
GOOD = {}  # {(folder, file): bytes}, made at the first call
ROOM = Path(tempfile.mkdtemp(prefix="fuzz"))
atexit.register(shutil.rmtree, ROOM, ignore_errors=True)


def good():
    """Two whole model folders, ours and Hugging Face's; every call puts them in order again."""
    if not GOOD:
        params = random_params(HPARAMS, np.random.default_rng(0))
        export(ROOM / "theirs", TINY, HPARAMS, params)
        ours = {"hparams.json": json.dumps(HPARAMS), "encoder.json": json.dumps(TINY.vocab),
                "vocab.bpe": "#version: 0.2\na b\n"}
        (ROOM / "ours").mkdir()
        for name, text in ours.items():
            (ROOM / "ours" / name).write_text(text, encoding="utf-8")
        write_params(ROOM / "ours", params)
        GOOD.update({(path.parent.name, path.name): path.read_bytes() for path in ROOM.glob("*/*")})
    for (folder, name), data in GOOD.items():
        path = ROOM / folder / name
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)
    return sorted(GOOD)


def encoder(data):
    """Files of a vocabulary, or merges of bytes; then a text and ids through what came of them."""
    good()
    parts = (data[1:].split(b"\xff\xfe\xfd") + [b"", b""])[:3]
    if data[:1] < b"\x80":
        for name, part in zip(("encoder.json", "vocab.bpe"), parts):
            (ROOM / "ours" / name).write_bytes(part or GOOD["ours", name])
        try:
            made = Encoder(read_json(ROOM / "ours" / "encoder.json"),
                           read_merges(ROOM / "ours" / "vocab.bpe"))
        except ValueError:
            return
    else:
        symbols, merges = list(byte_characters().values()), []
        for left, right in zip(parts[0][::2], parts[0][1::2]):  # a byte names a symbol made so far
            pair = symbols[left % len(symbols)], symbols[-1 - right % len(symbols)]
            if sum(map(len, pair)) < 100 and "".join(pair) not in symbols:
                merges.append(pair)
                symbols.append("".join(pair))
        made = Encoder({symbol: id for id, symbol in enumerate(symbols)}, merges)
    text = parts[2].decode("utf-8", "replace")
    assert made.decode(made.encode(text)) == text
    ids = [id % made.n_vocab for id in parts[2]]
    assert isinstance(made.decode(ids), str)
    assert made.decode_bytes(made.encode(text)) == text.encode()


def folder(data):
    """One file of a good model folder, replaced or patched, then loaded."""
    files = good()
    if len(data) < 4:
        return
    where, name = files[data[0] % len(files)]
    path, was, new = ROOM / where / name, GOOD[where, name], data[4:]
    begin = int.from_bytes(data[2:4], "little") % len(was)
    path.write_bytes(new if data[1] % 2 else was[:begin] + new + was[begin + len(new) :])
    try:
        made, hparams, params = load_encoder_hparams_and_params(where, ROOM)
    except (ValueError, OSError):
        return
    assert made.n_vocab == hparams["n_vocab"] and check_hparams(hparams, path)
    weights = [weight for _, weight in flatten(params)]
    assert sum(weight.size for weight in weights) == n_params(hparams)
    assert all(np.isfinite(weight).all() for weight in weights)


def arguments(data):
    """A command line, its words cut at NUL; the models are tiny and the network is not there."""
    good()
    words = [os.fsdecode(word) for word in data.split(b"\0")]
    models = ["--models_dir", str(ROOM), "--target_model_size", "ours",
              "--draft_model_size", "theirs", "--prompt", "a", "--n_tokens_to_generate", "2"]
    os.environ["GPT2_BASE_URL"] = "http://127.0.0.1:9"
    out, err, stdin = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(b"ab"))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), short():
            status = main.main(models + words)
    except SystemExit as exit:
        status = exit.code
    finally:
        sys.stdin = stdin
    assert status == 0 or status == 2 and err.getvalue().count("\n") == 1, (status, err.getvalue())


def short():
    """Within this, main.py writes 64 new tokens at most (--window knows no end) and no trace."""
    few = lambda task, *args, **flags: compare(task._replace(N=min(task.N, 64)), *args, **flags)
    return mock.patch.multiple(main, compare=few, save=lambda *args: None)


def corpus(target):
    """{name: bytes} of the cases kept: a line each, bytes in hexadecimal."""
    text = (Path(__file__).parent / "corpus" / f"{target}.txt").read_text(encoding="ascii")
    cases = (line.split(" ") for line in text.splitlines())
    return {name: bytes.fromhex(data) for name, data in cases}


TARGETS = {"encoder": encoder, "folder": folder, "arguments": arguments}
