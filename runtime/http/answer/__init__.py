"""Answers: inference, experiments, caches, batching."""
