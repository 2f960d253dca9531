"""Explains a plan to people: its stages, their code and their times."""
