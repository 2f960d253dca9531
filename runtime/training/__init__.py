"""Training that fans out: recipes of plain functions, whose candidates are served as they come."""
