"""A target that learns no more, for those who learn from it."""
import numpy as np
import torch
import torch.nn.functional as F


class Frozen:
    """A GPT-2 that remembers the states of every row of ids that it has read, as float16.

    What listens to a target reads the same text several times, and the target's pass takes most of
    the time: from the second time on it is saved. Costs 2 n_embd bytes an id, for windows of each
    length.
    """

    def __init__(self, gpt2):
        self.gpt2, self.known = gpt2.requires_grad_(False), {}

    @torch.no_grad()
    @torch.compiler.disable(recursive=False)  # a memory of bytes is nothing to compile
    def hidden(self, ids, first=0):  # [B, T] at positions first .. -> [B, T, n_embd]
        """The states after ln_f; `first` is a number, or one a row, [B, 1]."""
        places = torch.as_tensor(first).expand(len(ids), 1)
        keys = [(int(place), row.tobytes()) for place, row in zip(places, ids.cpu().numpy())]
        if any(key not in self.known for key in keys):  # all anew: one shape for the compiler
            self.known.update(zip(keys, self.gpt2.hidden(ids, first).half()))
        return torch.stack([self.known[key].to(self.gpt2.wte.weight.dtype) for key in keys])

    def __call__(self, ids, first=0):  # [B, T] -> [B, T, n_vocab]
        """The logits."""
        return F.linear(self.hidden(ids, first), self.gpt2.wte.weight)


def windows(ids, T, n=64):  # -> n times [1, T]
    """Evenly spaced pieces of a text."""
    for i in np.linspace(0, len(ids) - T, n).astype(int):
        yield torch.from_numpy(ids[i : i + T].astype(np.int64))[None]


def distances(p_target, log_p_draft):  # 2 x [.., n_vocab] -> scalars
    """How far a draft is from its target on average, for losses.

    KL(target, draft), up to a constant, Hinton et al. (2015); and the chance that a drawn guess is
    rejected, TV = sum |p_target - p_draft| / 2, Leviathan et al. (2023) Thm. 3.5.
    """
    return {"KL": -(p_target * log_p_draft).sum(-1).mean(),
            "TV": (p_target - log_p_draft.exp()).abs().sum(-1).mean() / 2}
