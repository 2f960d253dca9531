"""Requests to batches, and answers to bodies."""
