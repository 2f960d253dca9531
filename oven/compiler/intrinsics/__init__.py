"""Functions for emitted source beyond arithmetic and memory: text, counts, trees."""
