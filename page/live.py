"""Serve a page that shows a run round by round; open the printed address.

GET / returns trace.html with live.html; POST /decode takes the entries of a prompt
(run/entries.py), "decoder" and "K". It returns lines of JSON: the run without rounds, each
round, and at last the seconds or the error. One text is generated at a time.
Only this machine can connect. Requests from other pages have a different Origin or Host, and
are refused.
"""

import json
import re
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from lib.backend.arrays import in_one_line
from lib.checkpoints.files import json_value
from lib.terminal import Parser, command, flags_given
from measure.passes import Run
from page.page import page_text, run_as_data
from run.entries import ENTRIES, check_entries, task_of_entries
from run.flags import full_name, parse_args
from run.rounds import watched
from run.task import Task, compile_products, load_task, models_of_decoder, with_costs
from speculative import generate
from variants import DECODERS, build, entry_of
from variants.registry import whole_from_0
from variants.speculative import DECODER as DEFAULT

HOST = "127.0.0.1"
MAX_BYTES = 2**22  # of a request; far more than any context holds
FLAGS = """draft_model_size target_model_size models_dir backend dtype top_k top_p
repetition_penalty stop regex json_schema lark""".split()  # flags of main.py: models, sampling


def task_of(task: Task, asked: Any) -> Task:
    """Return the Task that a page asks for; ValueError for a missing or wrong value."""
    if not isinstance(asked, dict):
        raise ValueError(f"need a JSON object, got {asked!r:.80}")
    check_entries(asked, (*ENTRIES, "decoder", "K"))
    entry = entry_of(str(asked.get("decoder", DEFAULT.name)))
    settings = entry.settings({"K": asked["K"]} if "K" in asked else {})
    task = task_of_entries(asked, task._replace(entry=entry, settings=settings))
    # The last step, because a draft that is made from the target takes time.
    draft, target = models_of_decoder(entry, settings, task.models.draft, task.models.target)
    return task._replace(models=task.models._replace(draft=draft, target=target))


def run_without_rounds(task: Task) -> dict:
    """Return a run that begins, as data for the page."""
    settings = {"decoder": task.decoder, **task.settings, **task.models.sampling,
                "seed": task.seed, "n_tokens_to_generate": task.N, **task.pattern_asked}
    return run_as_data(task.encoder.decode(task.x), [], settings)


def send_rounds(task: Task, send: Callable[[dict], None]) -> None:
    """Decode; send the run without rounds, then each round, and at the end the seconds."""
    # Measured for each text whose decoder needs them, because the page chooses the decoder.
    task, _ = with_costs(task)
    models = task.new_models()
    step = task.with_forced(build(task.entry, models, task.settings), models)
    rng, see = watched(task, models, np.random.default_rng(task.seed))
    run = Run(models.draft, models.target)
    send({"run": run_without_rounds(task)})
    start = time.perf_counter()
    for result in generate(task.x, step, task.n_new, rng, task.ended):
        run.add(result, time.perf_counter() - start)
        send({"round": see(result, run.seconds)})
        start = time.perf_counter()
    send({"seconds": run.seconds})


class Handler(BaseHTTPRequestHandler):
    """Answer one request to a server that has the task."""

    timeout = 10  # seconds until a connection without a byte, read or sent, is closed
    lock = threading.Lock()  # of the text that is being generated

    def do_GET(self):
        if self.begin("/", "text/html"):
            self.wfile.write(live_page(self.server.task).encode())

    def do_POST(self):
        if not self.begin("/decode", "application/jsonl"):
            return
        try:
            task = task_of(self.server.task, self.read_json())
            with self.lock:  # a second request waits for the first
                send_rounds(task, self.send)
        except (ConnectionError, TimeoutError):
            pass  # the tab was closed
        except ValueError as error:
            self.send({"error": " ".join(str(error).split())})  # in one line
        except Exception as error:  # the page shows any error
            self.send({"error": f"cannot decode this request: {in_one_line(error)}"})

    def read_json(self):
        """Return the JSON value in the body of the request; ValueError if it has none."""
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,9}", length):  # int() would take "-1" and "1_000" too
            raise ValueError(f"need a Content-Length, got {length!r:.80}")
        if int(length) > MAX_BYTES:
            raise ValueError(f"need a request of at most {MAX_BYTES} bytes, got {length}")
        try:
            return json_value(self.rfile.read(int(length)))
        except ValueError as error:
            raise ValueError(f"need JSON, got: {error}") from None

    def begin(self, path, kind):
        """Begin the answer to this server's page; refuse others and return False."""
        # A page of a different site can send requests here, but not with this Host and Origin.
        hosts = {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}
        # A browser sends no Origin if the user typed the address, so None is allowed.
        origins = {None, *(f"http://{host}" for host in hosts)}
        is_own_host = self.headers.get("Host") in hosts
        is_own_origin = self.headers.get("Origin") in origins
        if self.path != path or not is_own_host or not is_own_origin:
            self.send_error(403, "Only this server's own page is answered")
            return False
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.end_headers()
        return True

    def send(self, message):
        """Send one line."""
        self.wfile.write(f"{json.dumps(message, allow_nan=False)}\n".encode())


def live_page(task: Task) -> str:
    """Return trace.html without a run, and live.html, the form that asks for one."""
    # {decoder: whether it has a K, a temperature, chats}; the form disables other fields.
    has_chats = getattr(task.encoder, "has_chats", False)
    fields = {name: {"K": "K" in entry.flags, "temperature": not entry.greedy,
                     "chat": has_chats}
              for name, entry in DECODERS.items()}
    form = Path(__file__).with_name("live.html").read_text(encoding="utf-8")
    no_text = {"settings": {}}  # the page hides the settings of a run without a text
    text = page_text(run_without_rounds(task) | no_text | {"live": fields})
    # A stored page may connect to nothing; this one has to ask its server.
    text = text.replace("default-src 'none';", "default-src 'none'; connect-src 'self';", 1)
    return text.replace("</body>", f"{form}</body>")


@command("page.live")
def main(argv=None):
    """Load the models, serve until Ctrl-C."""
    parser = Parser(prog="python -m page.live", description=__doc__.split("\n")[0],
                    epilog=f"Flags of main.py that also apply: --{', --'.join(FLAGS)}.")
    parser.add_argument("--port", type=whole_from_0, default=8000,
                        help="port of the page; 0 chooses a free port (default: 8000)")
    own, others = parser.parse_known_args(argv)
    others = [*map(full_name, others)]
    if unknown := flags_given(others) - {*FLAGS}:
        raise ValueError(f"--{min(unknown)} is not a flag of page.live: choose it on the page, "
                         "or see --help")
    args = parse_args(others, "page.live")
    # A port that is used is an error before the models are loaded.
    try:
        server = ThreadingHTTPServer((HOST, own.port), Handler)
    except OSError as error:
        raise OSError(f"cannot use port {own.port}: {error.strerror}; choose a different "
                      "--port") from None
    with server:
        # http.server makes a new Handler for each connection, which reads the task here.
        server.task = load_task(args)
        compile_products(server.task.models.target)  # the first text must not wait for Numba
        print(f"http://{HOST}:{server.server_port}/  (Ctrl-C stops it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("page.live: stopped", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
