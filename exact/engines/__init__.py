"""Run the verifiers that engines ship: what is installed is called, nothing is paraphrased.

python     transformers and mlx-lm, whose random calls are enumerated
triton     the kernels of SGLang and vLLM, on a CPU
boxes      the enumeration of a kernel that can only be called with numbers
programs   llama.cpp and OpenVINO GenAI, whole programs, so their texts are sampled
__main__   the register of engines, and the command
"""
