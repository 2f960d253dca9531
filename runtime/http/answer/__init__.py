"""Who answers: inference, experiments, caches, batching."""
