"""Run the verifiers that engines ship, by calling the installed packages themselves.

python     transformers and mlx-lm, whose random calls are enumerated
triton     the kernels of SGLang and vLLM, on a CPU
boxes      the enumeration of a kernel that can only be called with numbers
programs   llama.cpp and OpenVINO GenAI, which are whole programs and are sampled
__main__   the register of engines, and the command
"""
