"""What is trained, and how: sizes, plans and names of the stages of models.training.train.

A plan's letters are explained in models/training/trainer.py. `text` is "train", the corpus, or
"written", what the target wrote. A stage ends when its tokens or its minutes of work are used up.
"""

SHAPES = {
    "half": dict(n_vocab=4096, n_ctx=512, n_embd=192, n_head=3, n_layer=8),
    "target": dict(n_vocab=4096, n_ctx=512, n_embd=192, n_head=3, n_layer=16),
    "draft": dict(n_vocab=4096, n_ctx=512, n_embd=128, n_head=4, n_layer=1),
}
SHAPE_OF = {"deep": "target", "long": "target", "early": "draft"}  # of stages not named above
PLAN = dict(T=256, T_last=512, long_part=0.1, decay_from=0.2, batch=8192, lr=3e-3, muon_lr=0.02,
            text="train", aligned=False, seed=1, save_seconds=180, compile=True)
# The target's own text is in rows of 128 ids, one window each: 64 ids of a story and 64 that the
# target added. Longer greedy text goes in circles and teaches nothing. The last windows hold four
# rows: a draft trained on short windows only guessed badly after 300 tokens.
WRITTEN = dict(PLAN, T=128, long_part=0.25, text="written", aligned=True)
WRITE = dict(n_rows=24576, n_given=64, n_new=64, B=128, seed=1)  # half of the rows greedy
PLANS = {
    "half": dict(PLAN, tokens=12e6, minutes=22, long_part=0.0, decay_from=1.0),
    "deep": dict(PLAN, tokens=24e6, minutes=42, long_part=0.0),
    "long": dict(PLAN, tokens=4e6, minutes=12, T=512, lr=1.2e-3, muon_lr=8e-3, decay_from=0.0),
    "target": dict(PLAN, tokens=32e6, minutes=180, T=512, lr=2e-3, muon_lr=0.012),
    "early": dict(PLAN, tokens=40e6, minutes=11, T=512),
    "draft": dict(WRITTEN, tokens=32e6, minutes=20, lr=2e-3, muon_lr=0.014),
    "heads": dict(WRITTEN, tokens=3e6, minutes=4),
    "markov": dict(WRITTEN, tokens=3e6, minutes=4, lr=6e-3),
    "states": dict(WRITTEN, tokens=6e6, minutes=12, lr=2e-3, muon_lr=0.014),
    "eagle": dict(WRITTEN, tokens=24e6, minutes=40, lr=1e-3, muon_lr=0.007),
}
PARTS = ("half", "deep", "long", "target")  # of the target's training; each starts from the last
NAMES = {"target": "tales-large", "draft": "tales-small"}
STAGES = ("bpe", "begin", "half", "deep", "long", "target", "early", "write", "draft", "heads",
          "markov", "states", "eagle", "export")
