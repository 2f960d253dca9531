"""LightGBM and XGBoost models, read from their own files, and their wrappers inside pipelines."""
