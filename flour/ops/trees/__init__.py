"""Ensembles of decision trees: one operator, and the kinds of native code it has."""
