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
from models.training.smollm2.write import write_in_process

SEED_HELD_OUT = 0  # the seeds of the processes are 1, 2, ..
N_HELD_OUT = 12_000  # tokens, or as many as the training texts have


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
    answers, held_out = args.work / "answers", args.work / "held_out"
    jobs = [(answers, args.tokens / args.processes, seed)
            for seed in range(1, args.processes + 1)]
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        pool.starmap(write_in_process, [
            (held_out, min(N_HELD_OUT, args.tokens), SEED_HELD_OUT, True), *jobs], chunksize=1)
    train_on_answers(answers, held_out, args.work, args.read)


def train_on_answers(answers, held_out, work, n_read):
    """Train the head on all answers; write it."""
    from models.training.smollm2 import head
    from utils import load_model

    _, model = load_model("smollm2")
    texts, held_out = (head.load_texts(sorted(folder.glob("*.npz")))
                       for folder in (answers, held_out))
    trained = head.new_head(model, texts)
    head.train_head(trained, texts, held_out, work / "head.pt", n_read)
    print(json.dumps(head.measure(trained, held_out)))
    head.export_head(trained, work)


if __name__ == "__main__":
    sys.exit(main())
