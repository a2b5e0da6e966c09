"""How often is a draft right, over thousands of prompts? On all cores of a machine, or of several.

    python -m tools.survey --prompts FILE --decoder speculative "tree --widths 3,2" --out FILE.jsonl
    python -m tools.survey --prompts FILE --scheduler tcp://HOST:8786 --K 2 --out FILE.jsonl
    python -m tools.survey --summary FILE.jsonl --plot FILE.svg

All other flags are main.py's, for every decoder; those of one stand behind its name, in quotes.
Dask (requirements/cluster.txt) shares the prompts among workers (tools/survey_worker.py). A text is
seeded by (--seed, index), so it is that of main.py --prompts wherever it is written, and a prompt
whose worker died goes to another.

Records are written in the order of the prompts, each as soon as all before it are there. A file
that was cut off is gone on with by the same command. Several decoders have a file each. What the
records say together is told by tools/survey_summary.py.
"""

import importlib.util
import json
import re
import shlex
import sys
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

import main as command
from lib.backend.arrays import in_one_line
from docs.pictures.figures import save
from lib.demo.compare import is_auto
from lib.demo.prompts import head_of, in_order, open_out
from lib.demo.terminal import Help, Parser, complain, print_safely
from theory.checks import need
from tools.survey_summary import draw, read_records, summarise, tell
from tools.survey_worker import answer, begin, fingerprint, load

TIMEOUT = 10  # seconds, for a scheduler to answer, and then for its first worker to be there
AHEAD = 256  # prompts that Dask has at a time: enough for as many workers
UNTOLD = {"decoder", "seed", "models_dir", "backend"}  # told elsewhere, or of one machine only


# ---- one decoder

class Run:
    """One decoder and its file, checked: its flags, its models, and what is there of the file."""

    def __init__(self, args, decoder, rest):
        self.prompts, self.out = args.prompts, Path(args.out)
        if len(args.decoder) > 1:
            words = re.findall(r"[\w.,]+", decoder)
            self.out = self.out.with_stem("-".join([self.out.stem, *words]))
        self.words = ("--decoder", *shlex.split(decoder), *rest)
        self.args = command.parse_args([*self.words, "--prompts", self.prompts,
                                        "--out", str(self.out)])
        need(self.args.batch is None, "no --batch: a worker writes one text at a time", "one")
        task = load(self.words)
        need(not is_auto(task), "numbers for --K, --widths and --costs, so that no text hangs on a "
             "clock", f"--decoder {shlex.quote(decoder)}")
        begin(task)  # what a decoder itself refuses, it refuses now
        self.fingerprint = fingerprint(task)
        self.told = {"decoder": task.decoder, "settings": self.settings()}
        with open(self.prompts, "rb") as lines:
            self.n_prompts = sum(1 for _ in lines)
        with open(self.prompts, "rb") as lines:
            file, self.n_done = open_out(self.out, (head for head, _ in self.heads(lines)))
        file.close()

    def settings(self):
        """The settings that are no defaults, as JSON has them."""
        usual = command.settings_for_json(command.parse_args(["--decoder", self.args.decoder]))
        chosen = {name: value for name, value in command.settings_for_json(self.args).items()
                  if name not in UNTOLD and value != usual[name]}
        return json.loads(json.dumps(chosen))

    def heads(self, lines):
        """(what a record begins with, what is wrong with the line) of every prompt."""
        for i, line in enumerate(lines):
            head, error = head_of(i, line, self.args)
            yield head | self.told, error

    def write(self, client):
        """Write the records that are missing, with a bar on a terminal."""
        with open(self.prompts, "rb") as lines, open(self.out, "ab") as out, tqdm(
                total=self.n_prompts, initial=self.n_done, desc=self.out.stem, unit="text",
                leave=False, disable=None) as bar:
            heads = islice(self.heads(lines), self.n_done, None)
            for got in in_order(answers(client, self, heads), self.n_done):
                out.write(json.dumps(got.record).encode() + b"\n")
                out.flush()
                bar.update()


# ---- Dask

class Answer(NamedTuple):
    """What `in_order` sorts."""

    head: dict
    record: dict


def answers(client, run, heads):
    """The Answers to all heads, as they come."""
    from distributed import KilledWorker, as_completed  # optional: requirements/cluster.txt

    asked, futures = {}, as_completed()

    def ask(n):
        for head, error in islice(heads, n):
            future = client.submit(answer, run.words, run.fingerprint, head, error, pure=False)
            asked[future.key] = head
            futures.add(future)

    ask(AHEAD)
    for future in futures:
        head = asked.pop(future.key)
        try:
            record = future.result()
        except KilledWorker as why:  # one worker after another died of it
            record = head | {"error": in_one_line(why)}
        except Exception as why:
            raise OSError("need a scheduler, and workers that can load the models, got "
                          f"{in_one_line(why)}") from why
        yield Answer(head, record)
        ask(1)


@contextmanager
def cluster(scheduler, n_workers):
    """A client of the scheduler that was named, or of workers on this machine only."""
    from distributed import Client, LocalCluster  # optional: requirements/cluster.txt

    if scheduler:
        with Client(scheduler, timeout=TIMEOUT) as client:
            with suppress(TimeoutError):
                client.wait_for_workers(1, timeout=TIMEOUT)
            need(client.nthreads(), f"a worker at the scheduler {scheduler}", "none")
            check_workers(client)
            yield client
    else:  # with no limit of memory: a worker that nears one is stopped
        with LocalCluster(n_workers, threads_per_worker=1, processes=True, host="127.0.0.1",
                          dashboard_address="127.0.0.1:0", memory_limit=0) as workers:
            with Client(workers) as client:
                yield client


def check_workers(client):
    """Raise ValueError unless workers know this code: one that does not would die of a prompt."""
    try:
        client.run(exec, "import tools.survey_worker")
    except ImportError as why:
        raise ValueError("need workers that were started in this repository's folder, got "
                         f"{in_one_line(why)}") from why


# ---- the command

def parse_args(argv):
    """Our flags, and the others, which are main.py's."""
    parser = Parser("python -m tools.survey", description=__doc__, formatter_class=Help,
                    allow_abbrev=False)
    add = parser.add_argument
    add("--prompts", metavar="FILE", help="a prompt or a JSON object a line, as main.py's")
    add("--decoder", nargs="+", default=["speculative"], metavar="NAME",
        help='one or several; with flags of its own: "tree --widths 3,2"')
    add("--out", metavar="FILE.jsonl", help="the records; FILE-NAME.jsonl if there are several")
    add("--scheduler", metavar="ADDRESS", help="of a Dask cluster (default: this machine)")
    add("--workers", type=int, metavar="N", help="processes on this machine (default: its cores)")
    add("--summary", nargs="+", metavar="FILE.jsonl", help="tell of records that are there")
    add("--plot", type=Path, metavar="FILE.svg", help="draw the summary there and in FILE-dark.svg")
    args, rest = parser.parse_known_args(argv)
    check_args(args, rest)
    return args, rest


def check_args(args, rest):
    """Whatever can be refused before any model is loaded."""
    need(bool(args.prompts) != bool(args.summary), "--prompts or --summary", "both, or none")
    if args.prompts:
        need(args.out, "--out FILE.jsonl with --prompts", "none")
        need(args.workers is None or args.workers >= 1, "--workers >= 1", args.workers)
        need(not (args.workers and args.scheduler), "--workers or --scheduler", "both")
        need(len(set(args.decoder)) == len(args.decoder), "every decoder once", args.decoder)
        need(importlib.util.find_spec("distributed"),
             "Dask (pip install -r requirements/cluster.txt)", "none")
    else:
        need(not rest, "no other flags with --summary", " ".join(rest))
    if args.plot:
        need(args.plot.suffix == ".svg", "--plot to end in .svg", args.plot)
        need(importlib.util.find_spec("matplotlib"),
             "matplotlib for --plot (pip install -r requirements/plots.txt)", "none")


def survey(args, rest):
    """Write all records; the files that they are in."""
    runs = [Run(args, decoder, rest) for decoder in args.decoder]
    if any(run.n_done < run.n_prompts for run in runs):
        with cluster(args.scheduler, args.workers) as client:
            for run in runs:
                run.write(client)
    for run in runs:
        print_safely(f"{run.n_prompts} prompts in {run.out}: {run.n_prompts - run.n_done} now, "
                     f"{run.n_done} before.", sys.stdout)
    return [run.out for run in runs]


def main(argv=None):
    """Write and tell, or tell only. Returns the exit status."""
    try:
        args, rest = parse_args(sys.argv[1:] if argv is None else argv)
        summary = summarise(read_records(args.summary or survey(args, rest)))
        if args.plot:
            save(draw, 3.6, summary, args.plot)
        print_safely("\n".join(tell(summary)), sys.stdout)
    except BrokenPipeError:
        return 0
    except (ValueError, OSError, MemoryError) as error:
        return complain("survey", error)
    except KeyboardInterrupt:
        print("survey: interrupted; the same command goes on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
