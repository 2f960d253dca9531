"""Pure concurrency: engines, queues, reservations and back-pressure; knows callables, never models."""
