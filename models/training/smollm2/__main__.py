"""Train the head of SmolLM2-135M-Instruct that models/smollm2 has.

    python -m models.training.smollm2 --work DIR

The model answers prompts (prompts.py, write.py), and the head learns from the answers and the
states (head.py). An interrupted run goes on where it stopped. The head goes to
DIR/heads.safetensors.
"""

import json
import multiprocessing
import sys
from pathlib import Path

from lib.backend.products import n_cores
from lib.terminal import Help, Parser, command

SEED_HELD_OUT = 0  # the seeds of the processes are 1, 2, ..
N_HELD_OUT = 12_000


@command("models.training.smollm2", "requirements/train.txt")
def main(argv=None):
    parser = Parser("python -m models.training.smollm2", description=__doc__.split("\n")[0],
                    formatter_class=Help)
    parser.add_argument("--work", type=Path, default="smollm2-work",
                        help="folder for answers, checkpoint, log and head")
    parser.add_argument("--tokens", type=float, default=1e6,
                        help="number of tokens that the model writes")
    parser.add_argument("--read", type=float, default=2.5e6,
                        help="number of tokens that the head reads in training")
    parser.add_argument("--processes", type=int, default=n_cores(),
                        help="processes that write; each needs 4 GB of memory")
    args = parser.parse_args(argv)
    jobs = [(args.work, seed, args.tokens / args.processes)
            for seed in range(1, args.processes + 1)]
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        pool.starmap(write, [(args.work, SEED_HELD_OUT, N_HELD_OUT), *jobs], chunksize=1)
    train_on_answers(args.work, args.read)


def write(work, seed, n_tokens):
    """Write the answers of one seed, in a process."""
    from models.training.smollm2.write import write_answers
    from utils import load_model

    held_out = seed == SEED_HELD_OUT
    write_answers(*load_model("smollm2"), folder_of(work, held_out), n_tokens, seed, held_out)


def folder_of(work, held_out):
    """Return the folder of the answers."""
    return work / ("held_out" if held_out else "answers")


def train_on_answers(work, n_read):
    """Train the head on all answers; write it."""
    from models.training.smollm2 import head
    from utils import load_model

    _, model = load_model("smollm2")
    texts, held_out = (head.load_texts(sorted(folder_of(work, is_held).glob("*.npz")))
                       for is_held in (False, True))
    trained = head.new_head(model, texts)
    head.train_head(trained, texts, held_out, work / "head.pt", n_read)
    print(json.dumps(head.measure(trained, held_out)))
    head.export_head(trained, work)


if __name__ == "__main__":
    sys.exit(main())
