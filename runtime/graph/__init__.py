"""Graphs of models at run time: cut into steps, routed, and linked again when a model switches."""
