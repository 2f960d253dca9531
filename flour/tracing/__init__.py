"""Programs of arrays that remember how they were computed, so that others can take their place."""
