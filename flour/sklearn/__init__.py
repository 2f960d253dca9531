"""Fitted scikit-learn estimators as programs."""
