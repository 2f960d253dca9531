"""The pipelines that are raced, one module each, seeded: `make(spec)` yields fitted objects."""
