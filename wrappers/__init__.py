"""Wrap a model or a step, so that every decoder runs through the wrapper unchanged.

intersection            a draft with a different vocabulary
window                  texts longer than the context
forced                  tokens that a mask forces, without a pass
batch                   many texts at once
batch_gpt2              a GPT-2 that reads many texts in one pass
transformers_model      any causal language model that transformers loads
transformers_tree       a tree of guesses in one pass of such a model
chat_tokens             tokenizers of models other than GPT-2, and their chats
transformers_tokenizer  such a tokenizer, read by transformers
"""
