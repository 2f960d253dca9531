"""Pure concurrency: engines, queues and back-pressure; knows callables, never models."""
