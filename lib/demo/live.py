"""The page of a run while it is written: python -m lib.demo.live, and open the address that it prints.

    GET  /          trace.html with live.js, which asks for a text and draws each round as it comes
    POST /decode    {"prompt": "Once", "decoder": "lookup", "K": 4, "temperature": 1, "seed": 0,
                    "N": 60, "race": true} -> a line of JSON for each round, one before, one after

    task     what the flags loaded: each request is the same with its own prompt and settings
    turn     held by the text that is computing: texts take turns, a round each
    slots    one for each text that is being written

It listens on 127.0.0.1 only and answers its own page only: a name that leads here by DNS has
another Host, and a page from elsewhere another Origin. The standard library's server is enough.
"""

import argparse
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from lib.demo.compare import decode, warm_up
from lib.demo.page import page, pieces, trace
from lib.demo.task import load_task
from lib.demo.terminal import complain
from main import parse_args
from sampling import check_sampling
from variants import DECODERS, settings

HOST, N_TOP = "127.0.0.1", 5
MAX_BODY, DRAINED = 2**16, 2**20  # bytes: of a request, and read of one that is refused
MAX_NEW, MAX_TEXTS, PATIENCE = 200, 8, 60  # tokens; texts at once; seconds for a silent reader
SCRIPT = Path(__file__).parent / "live.js"
KINDS = {"prompt": str, "decoder": str, "K": int, "temperature": (int, float), "seed": int,
         "N": int, "race": bool}


class Refused(Exception):
    """A request that is not answered: its HTTP status, and why."""


class Gone(Exception):
    """The reader of a text has closed it."""


# ---- what is asked for

def task_of(task, asked):
    """The Task that a request asks for; ValueError says what must hold."""
    if not isinstance(asked, dict) or not asked.keys() <= KINDS.keys():
        raise ValueError(f"need an object with {', '.join(KINDS)} at most, got {str(asked)[:80]}")
    for name, value in asked.items():
        if not isinstance(value, KINDS[name]) or isinstance(value, bool) != (name == "race"):
            raise ValueError(f"need {name} of another type, got {repr(value)[:80]}")
    decoder, N, seed = asked.get("decoder", task.decoder), asked.get("N", 60), asked.get("seed", 0)
    if decoder not in offered(task):
        raise ValueError(f"need a decoder of {', '.join(offered(task))}, got {decoder[:80]!r}")
    if not (1 <= N <= MAX_NEW and 0 <= seed < 2**64):
        raise ValueError(f"need 1 <= N <= {MAX_NEW} and 0 <= seed < 2**64, got {N} and {seed}")
    sampling = {**task.sampling, "temperature": asked.get("temperature", 1.0)}
    check_sampling(**sampling)
    x = task.encoder.encode(asked.get("prompt", ""))
    if not 1 <= len(x) <= task.n_ctx - N:
        raise ValueError(f"need a prompt of 1 to {task.n_ctx - N} tokens, got {len(x)}")
    return task._replace(x=x, decoder=decoder, N=N, seed=seed, sampling=sampling, window=False,
                         settings=settings(decoder, {"K": asked.get("K")}))


def offered(task):
    """The decoders that what was loaded suffices for."""
    return [name for name, entry in DECODERS.items()
            if task.new_draft or "draft" not in entry.needs]


def stream_text(task, race, turn, send):
    """Decode, and send what happens as it happens; between two rounds it is the others' turn."""
    told = {**task.sampling, "decoder": task.decoder, **task.settings, "seed": task.seed,
            "n_tokens_to_generate": task.N}
    prompt, rounds, plain = task.encoder.decode(task.x), [], None

    def look(seen=None, message=None):
        rounds.extend([seen] if seen else [])
        turn.release()
        try:
            send(message or {"round": seen})
        finally:
            turn.acquire()

    with turn:
        run = decode(task, task.decoder, look, N_TOP)
        if race:
            timed = decode(task, "autoregressive", lambda seen: look(message={"plain": 1}))
            plain = {"seconds": timed.seconds, "pieces": pieces(task.encoder, timed.ids),
                     "speedup": timed.seconds / run.seconds, "target_passes": len(run.target.rows)}
    whole = trace(prompt, rounds, told, run.seconds, plain)
    send({"run": {name: part for name, part in whole.items() if name != "rounds"}})


# ---- the server

class Handler(BaseHTTPRequestHandler):
    """One connection: it is answered, and closed."""

    timeout = PATIENCE

    def log_message(self, *args):
        """Nothing here prints."""

    def do_GET(self):
        self.answer(self.get)

    def do_POST(self):
        self.answer(self.post)

    def answer(self, act):
        """Check who asks, then act; a refusal has its status and says why."""
        self.started = False
        try:
            self.check_source()
            act()
        except Refused as refused:
            self.refuse(*refused.args)
        except Gone:
            pass  # the tab was closed: its text ends here, and its turn is given back
        except (ValueError, OSError, MemoryError) as error:
            self.refuse(400, " ".join(str(error).split()))

    def check_source(self):
        """Only this server's own name and pages: nobody else's, however they came here."""
        names = {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}
        hosts, origins = (self.headers.get_all(name, []) for name in ("Host", "Origin"))
        if len(hosts) != 1 or hosts[0] not in names:
            raise Refused(421, f"need the Host {HOST}:{self.server.server_port}")
        if not set(origins) <= {f"http://{name}" for name in names}:
            raise Refused(403, "need a request from this server's own page")

    def get(self):
        if self.path != "/":
            raise Refused(404, "need / or /decode")
        self.start("text/html; charset=utf-8")
        self.wfile.write(live_page(self.server.task).encode())

    def post(self):
        if self.path != "/decode":
            raise Refused(404, "need /decode")
        asked = self.body()
        task = task_of(self.server.task, asked)
        if not self.server.slots.acquire(blocking=False):
            raise Refused(503, f"need fewer than {MAX_TEXTS} texts at once; try again")
        try:
            stream_text(task, asked.get("race", False), self.server.turn, self.send)
        finally:
            self.server.slots.release()

    def body(self):
        """The JSON of a request, if it is one and not too long."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise Refused(411, "need a Content-Length")
        if int(length) > MAX_BODY:
            self.rfile.read(min(int(length), DRAINED))  # else the answer may be lost
            raise Refused(413, f"need at most {MAX_BODY} bytes, got {length[:20]}")
        if self.headers.get_content_type() != "application/json":  # no form of another page's
            raise Refused(415, "need application/json")
        try:
            return json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise Refused(400, "need JSON") from None

    def start(self, kind, status=200):
        """The head of an answer."""
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Cache-Control", "no-store"),
                            ("X-Content-Type-Options", "nosniff"), ("X-Frame-Options", "DENY")):
            self.send_header(name, value)
        self.end_headers()
        self.started = True

    def send(self, message):
        """One line of a text; the first begins the answer."""
        try:
            if not self.started:
                self.start("application/jsonl; charset=utf-8")
            self.wfile.write(json.dumps(message, allow_nan=False).encode() + b"\n")
        except OSError:
            raise Gone from None

    def refuse(self, status, why):
        """Say why not: as an answer, or in a line if one has begun."""
        try:
            if self.started:
                self.wfile.write(json.dumps({"error": why}).encode() + b"\n")
            else:
                self.start("text/plain; charset=utf-8", status)
                self.wfile.write(f"{why}\n".encode())
        except OSError:
            pass  # nobody listens


def live_page(task):
    """trace.html with no run in it yet, and the script that asks for one."""
    decoders = {name: {"has_K": "K" in DECODERS[name].flags, "greedy": DECODERS[name].greedy}
                for name in offered(task)}
    run = trace("", []) | {"live": {"max_new": MAX_NEW, "decoders": decoders}}
    script = f"<script>\n{SCRIPT.read_text(encoding='utf-8')}</script>\n</body>"
    text = page(run).replace("default-src 'none';", "default-src 'none'; connect-src 'self';", 1)
    return script.join(text.rsplit("</body>", 1))


def make_server(task, port):
    """A server that listens, on this machine only."""
    server = ThreadingHTTPServer((HOST, port), Handler)
    server.task, server.turn = task, threading.Lock()
    server.slots = threading.BoundedSemaphore(MAX_TEXTS)
    return server


def main(argv=None):
    """Load the models, serve until Ctrl-C. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="lib.demo.live", description=__doc__.split("\n")[0],
                                     epilog="all other flags are main.py's")
    parser.add_argument("--port", type=int, default=8000, help="0: any that is free")
    own, others = parser.parse_known_args(argv)
    try:
        task = load_task(parse_args(others))
        warm_up(task)
        with make_server(task, own.port) as server:
            print(f"http://{HOST}:{server.server_port}/  (Ctrl-C stops it)", flush=True)
            server.serve_forever()
    except (ValueError, OSError, OverflowError, MemoryError) as error:
        return complain("lib.demo.live", error)
    except KeyboardInterrupt:
        print("lib.demo.live: stopped", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
