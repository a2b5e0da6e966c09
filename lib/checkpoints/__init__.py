"""Files of models: read, written and downloaded.

huggingface  GPT-2 in Hugging Face's layout
openai       GPT-2 as OpenAI released it
hub          a model's folder by its path, or by its name on Hugging Face's hub
gguf         llama.cpp's file, read and written
weights      the tree of weights: keys, order, checks
vocabulary   symbols and merges
tensors      arrays in safetensors files
files        files written whole or not at all
download     files that are resumed until they are whole
"""
