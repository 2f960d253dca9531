"""Workloads, contestants, experiments and reports; never shipped in the wheel."""
