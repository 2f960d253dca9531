"""Adapters of estimators that are compositions: they have no operator of their own.

A new module needs no entry anywhere: scripts/generate.py writes the index that finds it.
"""
