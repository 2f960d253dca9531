"""The runtime: plans by name and version, two engines, memory, what plans share."""
