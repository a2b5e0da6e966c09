"""Files of models: read, written and downloaded.

huggingface  GPT-2 in Hugging Face's layout
openai       GPT-2 as OpenAI released it
hub          a model's folder by its path, or by its name on Hugging Face's hub
llama        Llama, Mistral, Qwen2, Qwen3 and SmolLM, from a folder or a GGUF file
gguf         llama.cpp's file, read and written
weights      the tree of weights: keys, order, checks; arrays in safetensors files
vocabulary   GPT-2's symbols and merges
chat_template  a chat as one text, by a program from the model's files
files        files written whole or not at all
download     files that are resumed until they are whole
"""
