"""Make tiny random models of many families, for tests of wrappers/transformers_model.py.

A file of tests that imports from here is skipped where PyTorch or transformers is missing.
"""

import pytest

from tests.llamas import BASE

torch = pytest.importorskip("torch", reason="needs requirements/peers.txt")
transformers = pytest.importorskip("transformers", reason="needs requirements/peers.txt")

torch.set_num_threads(1)  # tiny products are slower on several

ENDS = dict(bos_token_id=0, eos_token_id=1, pad_token_id=0)
LLAMA = BASE | dict(tie_word_embeddings=False)
GPT2 = dict(vocab_size=50, n_embd=32, n_head=4, n_layer=2, n_positions=64, **ENDS)
WINDOW = dict(sliding_window=8)
EXPERTS = dict(num_local_experts=4, num_experts_per_tok=2)
LONGROPE = dict(rope_type="longrope", rope_theta=1e4, short_factor=[1.0] * 4,
                long_factor=[4.0] * 4, original_max_position_embeddings=16)
LINEAR = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
              linear_value_head_dim=8)
FAMILIES = {  # "type" or "type, what is special": sizes and settings
    "gpt2": GPT2,
    "llama": LLAMA,
    "qwen2": LLAMA,
    "qwen3": LLAMA,
    "mistral": LLAMA | dict(sliding_window=None),
    "mistral, window": LLAMA | WINDOW,
    "gemma2": LLAMA | WINDOW,
    "gemma3_text": LLAMA | WINDOW | dict(num_hidden_layers=6),  # the sixth layer has no window
    "gpt_neox": LLAMA,
    "phi3": LLAMA,
    "phi3, long": LLAMA | dict(rope_parameters=LONGROPE, original_max_position_embeddings=16),
    "olmo2": LLAMA,
    "opt": dict(vocab_size=50, hidden_size=32, ffn_dim=48, num_hidden_layers=2,
                num_attention_heads=4, word_embed_proj_dim=32, max_position_embeddings=64,
                **ENDS),
    "mixtral": LLAMA | EXPERTS,
    "granite": LLAMA,
    "falcon": dict(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                   max_position_embeddings=64, **ENDS),
    "bloom": dict(vocab_size=50, hidden_size=32, n_layer=2, n_head=4, **ENDS),
    "mpt": dict(vocab_size=50, d_model=32, n_layers=2, n_heads=4, max_seq_len=64, **ENDS),
    "gpt_oss": LLAMA | EXPERTS | WINDOW,
    "openai-gpt": GPT2,
    "mamba": dict(vocab_size=50, hidden_size=32, state_size=4, num_hidden_layers=2, **ENDS),
    "lfm2": LLAMA | dict(layer_types=["conv", "full_attention"]),
    "qwen3_next": LLAMA | LINEAR | dict(
        layer_types=["linear_attention", "full_attention"], num_experts=4,
        num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=16),
}
NO_CACHE = {"openai-gpt", "mamba", "lfm2", "qwen3_next"}  # every pass reads the whole text
HAVE_WINDOWS = {"mistral, window", "gemma2", "gemma3_text", "gpt_oss"}
PATH_BY_PATH = NO_CACHE | HAVE_WINDOWS | {"bloom", "mpt"}  # a tree takes a pass for each path


def random_model(name, dtype=torch.float64, seed=0, **settings):
    """Return a random model of a family, with rows that are far from flat."""
    config = transformers.AutoConfig.for_model(name.partition(",")[0], **FAMILIES[name] | settings)
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config).to(dtype).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight *= 4
    return model
