"""LightGBM and XGBoost models, read from their own files."""
