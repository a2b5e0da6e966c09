"""How the bundled pair and its heads were trained.

train    the command
plans    names, sizes and lengths of the stages
stages   one stage: train, write a text, or export
trainer  one loop for every model, resumable and seeded
tasks    what is learned: language, distillation, heads
eagle    EAGLE's head
bpe      the vocabulary
export   PyTorch models as model folders
"""
