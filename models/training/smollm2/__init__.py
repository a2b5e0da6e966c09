"""Train the head of SmolLM2-135M-Instruct (python -m models.training.smollm2 --help)."""
