"""Train the bundled pair of models.

    python -m models.training.train --corpus FOLDER --work DIR

FOLDER holds train.txt and valid.txt. A finished stage is skipped; an interrupted one resumes.
The models go to DIR/models, or to --out. Only --force overwrites models that are there already.

    bpe        byte-level BPE of 4,096 entries in GPT-2's format, and the corpus as ids
    target     the large model, on windows of 256 ids and then of 512
    early      a one-layer GPT-2 on the text alone, which is quick
    write      the target continues pieces of the corpus, greedily and at temperature 1
    draft      the early model, distilled from the target on what the target wrote
    heads      three Medusa heads on the frozen target, trained on what it wrote
    markov     a table for the heads: the previous guess's effect on the next one's scores
    states     EAGLE's head, part 1: a block that predicts the frozen target's next state
    eagle      part 2: the head learns to guess
    export     model folders, with all heads in heads.safetensors, into --out

Sizes and plans: models/training/plans.py.
"""

import sys
from argparse import Namespace
from pathlib import Path

from lib.terminal import Help, Parser, command
from models.training import plans


def check_folders(args: Namespace) -> None:
    """Raise ValueError if the corpus is not there or a model would be overwritten."""
    for name in ("train.txt", "valid.txt"):
        if not (args.corpus / name).is_file():
            raise ValueError(f"need a file {name} in --corpus {args.corpus}, got none")
    for flag, folder in (("work", args.work), ("out", args.out)):
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"need a folder for --{flag}, got the file {folder}")
    for name in plans.MODELS.values():
        folder = args.out / name
        if folder.exists() and not args.force:
            raise ValueError(f"{folder} already exists: choose a different --out, or --force "
                             "to overwrite it")


@command("models.training.train", "requirements/train.txt")
def main(argv=None):
    parser = Parser("python -m models.training.train", description=__doc__.split("\n")[0],
                    formatter_class=Help)
    add = parser.add_argument
    add("--corpus", type=Path, required=True, help="folder with train.txt and valid.txt")
    add("--work", type=Path, default="train-work", help="folder for checkpoints and logs")
    add("--out", type=Path, help="folder for the two model folders (default: models in --work)")
    add("--force", action="store_true", help="overwrite existing models in --out")
    args = parser.parse_args(argv)
    args.out = args.out or args.work / "models"
    check_folders(args)
    from models.training import bpe, stages  # they need PyTorch, which --help does not

    args.work.mkdir(parents=True, exist_ok=True)
    bpe.prepare(args.corpus, args.work, plans.SHAPES["target"]["vocab_size"])
    for stage in plans.PLANS:  # in this order
        if plans.PLANS[stage]["text"] == "written":
            stages.write_stage(args.work)
        stages.train_stage(stage, args.work)
    stages.export_stage(args.work, args.out)


if __name__ == "__main__":
    sys.exit(main())
