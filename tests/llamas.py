"""Make random Llamas for tests: the tree of weights of llama.py, and its logits by hand."""

import numpy as np

from cache import softmax

EPS = 1e-5
LLAMA3 = dict(factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)


def llama_params(seed=0, dtype=np.float64, n_vocab=13, n_ctx=24, n_embd=16, n_inner=24,
                 n_layer=2, n_head=4, n_kv=2, d_head=4, has_biases=False, has_norms=False,
                 is_tied=True, scaling=None, still=()):
    """Return random weights, so large that attention and the gate matter."""
    rng = np.random.default_rng(seed)

    def matrix(n_in, n_out, *, has_bias=False):
        made = {"w": (rng.normal(size=(n_out, n_in)) / 2).astype(dtype).T}
        return made | ({"b": rng.normal(size=n_out).astype(dtype)} if has_bias else {})

    def norm(n):
        return {"g": (1 + rng.normal(size=n) / 2).astype(dtype), "eps": EPS}

    def block(i):
        attn = {"c_attn": matrix(n_embd, (n_head + 2 * n_kv) * d_head, has_bias=has_biases),
                "c_proj": matrix(n_head * d_head, n_embd)}
        if has_norms:
            attn |= {"q_norm": norm(d_head), "k_norm": norm(d_head)}
        if i in still:
            attn["turns"] = False
        return {"ln_1": norm(n_embd), "attn": attn, "ln_2": norm(n_embd),
                "mlp": {"c_fc": matrix(n_embd, 2 * n_inner), "c_proj": matrix(n_inner, n_embd)}}

    params = {"wte": rng.normal(size=(n_vocab, n_embd)).astype(dtype),
              "blocks": [block(i) for i in range(n_layer)], "ln_f": norm(n_embd),
              "n_ctx": n_ctx, "n_kv": n_kv,
              "rope": {"d_head": d_head, "theta": 100.0, "scaling": scaling}}
    if not is_tied:
        params["lm_head"] = rng.normal(size=(n_vocab, n_embd)).astype(dtype)
    return params


FORMS = {  # what one family has and not all
    "llama": {}, "one head of keys": dict(n_kv=1), "a head of keys for each": dict(n_kv=4),
    "its own unembedding": dict(is_tied=False), "Qwen2's biases": dict(has_biases=True),
    "Qwen3's norms": dict(has_norms=True, d_head=6), "Llama 3.1's scaling": dict(scaling=LLAMA3),
    "SmolLM3's still blocks": dict(still=(1,))}


def angles_by_hand(rope):
    """Return the angle of each pair for one position, by Llama 3.1's published rule."""
    angles = [rope["theta"] ** (-2 * j / rope["d_head"]) for j in range(rope["d_head"] // 2)]
    if not (scaling := rope["scaling"]):
        return angles
    old = scaling["original_max_position_embeddings"]
    scaled = []
    for angle in angles:
        wavelength = 2 * np.pi / angle
        if wavelength < old / scaling["high_freq_factor"]:
            scaled.append(angle)
        elif wavelength > old / scaling["low_freq_factor"]:
            scaled.append(angle / scaling["factor"])
        else:
            smooth = ((old / wavelength - scaling["low_freq_factor"])
                      / (scaling["high_freq_factor"] - scaling["low_freq_factor"]))
            scaled.append((1 - smooth) * angle / scaling["factor"] + smooth * angle)
    return scaled


def twin_logits(ids, params, n_head):
    """Compute every head, row and pair by hand, without llama.py's code."""
    d, n_kv, angles = params["rope"]["d_head"], params["n_kv"], angles_by_hand(params["rope"])

    def norm(row, g, eps):
        return row / np.sqrt(np.mean(row**2) + eps) * g

    def turned(head, position):
        out = np.empty(d)
        for j, angle in enumerate(angles):
            a, b = head[2 * j], head[2 * j + 1]
            cos, sin = np.cos(position * angle), np.sin(position * angle)
            out[2 * j], out[2 * j + 1] = a * cos - b * sin, a * sin + b * cos
        return out

    def heads_of(row, attn, position):
        row = row @ attn["c_attn"]["w"] + attn["c_attn"].get("b", 0)
        heads = [row[i * d : i * d + d] for i in range(n_head + 2 * n_kv)]
        for i in range(n_head + n_kv):
            name = "q_norm" if i < n_head else "k_norm"
            if name in attn:
                heads[i] = norm(heads[i], **attn[name])
            if attn.get("turns", True):
                heads[i] = turned(heads[i], position)
        return heads

    x = params["wte"][ids]
    for block in params["blocks"]:
        heads = [heads_of(norm(row, **block["ln_1"]), block["attn"], position)
                 for position, row in enumerate(x)]
        for i in range(len(ids)):
            mixed = []
            for h in range(n_head):
                group = n_head + h * n_kv // n_head  # the head of keys of this head of queries
                scores = [heads[j][group] @ heads[i][h] / np.sqrt(d) for j in range(i + 1)]
                values = [heads[j][group + n_kv] for j in range(i + 1)]
                mixed.append(softmax(np.array(scores)) @ np.array(values))
            x[i] = x[i] + np.concatenate(mixed) @ block["attn"]["c_proj"]["w"]
        for i, row in enumerate(x):
            wide = norm(row, **block["ln_2"]) @ block["mlp"]["c_fc"]["w"]
            gate, inner = wide[: len(wide) // 2], wide[len(wide) // 2 :]
            x[i] = row + gate / (1 + np.exp(-gate)) * inner @ block["mlp"]["c_proj"]["w"]
    rows = np.array([norm(row, **params["ln_f"]) for row in x])
    return rows @ params.get("lm_head", params["wte"]).T
