"""Callers' data converted to the columns that a program's inputs are typed for."""
