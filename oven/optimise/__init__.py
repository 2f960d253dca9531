"""Rewriting programs: patterns, rules, passes, and the driver that applies them."""
