"""Show a run while it is written: python -m lib.demo.live, and open the address it prints.

GET / is trace.html with live.html; POST /decode takes {"prompt", "decoder", "K", "temperature",
"seed", "N", "race"} and answers a line of JSON per round. Only this machine can connect. A request
by a foreign page has a different Origin or Host, and is refused.
"""

import argparse
import contextlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from lib.demo.compare import decode, warm_up, with_costs
from lib.demo.page import page, pieces, trace
from lib.demo.task import load_task
from lib.demo.terminal import command
from main import parse_args
from variants import DECODERS

HOST, MAX_TEXTS, MAX_BYTES = "127.0.0.1", 8, 2**20  # texts at once; of a request
FLAGS = """draft_model_size target_model_size models_dir cut_vocab backend dtype top_k top_p
repetition_penalty stop""".split()  # main.py's that choose models and sampling
FIELDS = {"K": ("K", 1, 64), "N": ("New tokens", 1, 200), "temperature": ("Temperature", 0.0, 99.0),
          "seed": ("Seed", 0, 2**53 - 1)}  # JavaScript rounds larger ones


def task_of(task, asked):
    """Return the Task that a page asks for; ValueError has a sentence for its reader.

    `asked` is any JSON. A number that is left out is the lowest of its field.
    """
    asked = asked if isinstance(asked, dict) else {}
    entry, numbers = DECODERS.get(str(asked.get("decoder"))), {}
    if entry is None:
        raise ValueError("There is no such decoder.")
    for field, (label, low, high) in FIELDS.items():
        numbers[field] = value = asked.get(field, low)
        if type(value) not in (int, type(low)) or not low <= value <= high:
            what = "a whole number" if type(low) is int else "a number"
            raise ValueError(f"{label} must be {what} from {low} to {high}.")
    x, most = task.encoder.encode(str(asked.get("prompt"))), task.n_ctx - numbers["N"]
    if not 1 <= len(x) <= most:
        raise ValueError(f"The prompt must have 1 to {most} tokens; this one has {len(x)}.")
    given = {"K": numbers["K"]} if "K" in asked else {}
    return task._replace(x=x, decoder=entry.name, settings=entry.settings(given), N=numbers["N"],
                         sampling={**task.sampling, "temperature": numbers["temperature"]},
                         seed=numbers["seed"])


def write_text(task, race, turn, send):
    """Decode, and send each round with the figures so far. Texts alternate, one round each."""
    prompt, rounds, plain = task.encoder.decode(task.x), [], None
    shown = {**task.sampling, "decoder": task.decoder, **task.settings, "seed": task.seed,
             "n_tokens_to_generate": task.N}

    def on_round(seen=None, done=False, **figures):
        rounds.extend([seen] if seen else [])
        run = trace(prompt, rounds, shown, **figures)
        del run["rounds"]  # the page has those before
        turn.release()
        try:
            send({"round": seen, "run": run, "done": done})
        finally:
            turn.acquire()

    with turn:
        task, _ = with_costs(task)
        run = decode(task, task.decoder, on_round, n_top=5)
        if race:
            timed = decode(task, "autoregressive", lambda seen: on_round())
            plain = {"seconds": timed.seconds, "pieces": pieces(task.encoder, timed.ids),
                     "speedup": timed.seconds / run.seconds, "target_passes": len(run.target.rows)}
        on_round(done=True, seconds=run.seconds, plain=plain)


class Handler(BaseHTTPRequestHandler):
    """One request. The server has the task, the turn to compute, and a slot for each text."""

    timeout, started = 60, False  # seconds for a silent reader; has the answer begun?

    def log_message(self, *args):
        """Print nothing."""

    def do_GET(self):
        with self.answering("/"):
            self.send(live_page(self.server.task), kind="text/html")

    def do_POST(self):
        with self.answering("/decode"):
            n_bytes = int(self.headers.get("Content-Length", 0))
            if not 0 <= n_bytes <= MAX_BYTES:
                raise ValueError(f"The request must have at most {MAX_BYTES} bytes.")
            asked = json.loads(self.rfile.read(n_bytes))
            task = task_of(self.server.task, asked)
            with self.server.slots:  # one text more waits until another is done
                write_text(task, asked.get("race"), self.server.turn,
                           lambda message: self.send(json.dumps(message, allow_nan=False)))

    @contextlib.contextmanager
    def answering(self, path):
        """Check who asks, and for what; send in one line why a request is refused."""
        names = {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}
        origins = {f"http://{name}" for name in names}
        with contextlib.suppress(ConnectionError, TimeoutError):  # the tab was closed
            try:
                if (self.headers.get("Host") not in names or self.path != path
                        or not origins.issuperset(self.headers.get_all("Origin", []))):
                    raise ValueError("Only this server's own page is answered.")
                yield
            except (ValueError, OSError, MemoryError, RecursionError) as error:
                why = " ".join(str(error).split()).replace("--", "")  # a page has no flags
                self.send(json.dumps({"error": why}), status=400)

    def send(self, text, status=200, kind="application/jsonl"):
        """Send a page or one line; the first begins the answer."""
        if not self.started:
            self.started = True
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("X-Frame-Options", "DENY")
            self.end_headers()
        self.wfile.write(f"{text}\n".encode())


def live_page(task):
    """Return trace.html with no run in it yet, and live.html, which asks for one."""
    decoders = {name: {"has_K": "K" in entry.flags, "greedy": entry.greedy}
                for name, entry in DECODERS.items()}
    form = Path(__file__).with_name("live.html").read_text(encoding="utf-8")
    text = page(trace(task.encoder.decode(task.x), []) | {"live": {"decoders": decoders}})
    text = text.replace("default-src 'none';", "default-src 'none'; connect-src 'self';", 1)
    return text.replace("</body>", f"{form}</body>")


def make_server(task, port):
    """Return a server that listens, on this machine only."""
    server = ThreadingHTTPServer((HOST, port), Handler)
    server.task, server.turn = task, threading.Lock()
    server.slots = threading.BoundedSemaphore(MAX_TEXTS)
    return server


@command("lib.demo.live")
def main(argv=None):
    """Load the models, serve until Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m lib.demo.live", description=__doc__.split("\n")[0],
        epilog=f"main.py's flags for models and sampling are taken: --{', --'.join(FLAGS)}. "
               "The page asks for everything else.")
    parser.add_argument("--port", type=int, default=8000, help="0: any free one (default: 8000)")
    own, others = parser.parse_known_args(argv)
    for flag in others:
        if flag.startswith("--") and flag[2:].partition("=")[0] not in FLAGS:
            raise ValueError(f"need no {flag}: the page asks for it, or see --help")
    task = load_task(parse_args(others))
    warm_up(task)
    with make_server(task, own.port) as server:
        print(f"http://{HOST}:{server.server_port}/  (Ctrl-C stops it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("lib.demo.live: stopped", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
