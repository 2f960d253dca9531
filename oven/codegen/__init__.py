"""From an optimised program to the source of its stages."""
