"""Hold the names, the sizes and the plans of the stages of models.training.train.

SHAPES has the names of transformers' GPT2Config; trainer.py explains a plan's entries. `text`
is "train", the corpus, or "written", the target's text.
"""

MODELS = {"target": "tales-large", "draft": "tales-small"}  # the folders that are written
DRAFT = dict(vocab_size=4096, n_positions=512, n_embd=128, n_head=4, n_layer=1)
SHAPES = {"target": dict(vocab_size=4096, n_positions=512, n_embd=192, n_head=3, n_layer=16),
          "early": DRAFT, "draft": DRAFT}
PLAN = dict(T=256, T_last=512, long_part=0.1, decay_from=0.2, batch=8192, lr=3e-3, muon_lr=0.02,
            text="train", aligned=False, seed=1, save_seconds=180, compile=True)
# The target's own text is in rows of 128 ids, one window each: 64 ids of a story and 64 that
# the target added. Longer greedy text repeats itself and teaches nothing. The last windows hold
# four rows, because a draft that had only seen short windows guessed badly after 300 tokens.
WRITTEN = dict(PLAN, T=128, long_part=0.25, text="written", aligned=True)
WRITE = dict(n_rows=24576, n_given=64, n_new=64, B=128, seed=1)
PLANS = {
    "target": dict(PLAN, steps=8800, long_part=0.5),
    "early": dict(PLAN, steps=2000, T=512),
    "draft": dict(WRITTEN, steps=3000, lr=2e-3, muon_lr=0.014),
    "heads": dict(WRITTEN, steps=370),
    "markov": dict(WRITTEN, steps=370, lr=6e-3),
    "states": dict(WRITTEN, steps=730, lr=2e-3, muon_lr=0.014),
    "eagle": dict(WRITTEN, steps=2900, lr=1e-3, muon_lr=0.007),
}
