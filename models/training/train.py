"""Train the bundled pair of models.

    python -m models.training.train --corpus FOLDER --work DIR

FOLDER holds train.txt and valid.txt. A finished stage is skipped; an interrupted one resumes.
The models go to DIR/models.

    bpe        byte-level BPE of 4,096 entries in GPT-2's format, and the corpus as ids
    target     the large model, on windows of 256 ids and then of 512
    early      a one-layer GPT-2 on the text alone, which is quick
    write      the target continues pieces of the corpus, greedily and at temperature 1
    draft      the early model, distilled from the target on what the target wrote
    heads      three Medusa heads on the frozen target, trained on what it wrote
    markov     a table for the heads: the previous guess's effect on the next one's scores
    states     EAGLE's head, part 1: a block that predicts the frozen target's next state
    eagle      part 2: the head learns to guess
    export     model folders, with all heads in heads.safetensors

Sizes and plans: models/training/plans.py.
"""

import sys
from pathlib import Path

from lib.terminal import Help, Parser, command
from models.training import plans


@command("models.training.train", "requirements/train.txt")
def main(argv=None):
    parser = Parser("python -m models.training.train", description=__doc__.split("\n")[0],
                    formatter_class=Help)
    parser.add_argument("--corpus", type=Path, required=True,
                        help="folder with train.txt and valid.txt")
    parser.add_argument("--work", type=Path, default="train-work",
                        help="folder for checkpoints, logs and models")
    args = parser.parse_args(argv)
    from models.training import bpe, stages  # they need PyTorch, which --help does not

    bpe.prepare(args.corpus, args.work, plans.SHAPES["target"]["vocab_size"])
    for stage in plans.PLANS:  # in this order
        if plans.PLANS[stage]["text"] == "written":
            stages.write_stage(args.work)
        stages.train_stage(stage, args.work)
    stages.export_stage(args.work)


if __name__ == "__main__":
    sys.exit(main())
