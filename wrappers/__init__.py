"""Models made from other models: every decoder runs through them unchanged.

transformers_model      any causal language model that transformers loads
transformers_tokenizer  its tokenizer, with the names and the bytes that the programs use
"""
