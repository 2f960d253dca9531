"""Native stages bound to their parameters, and the columns they read and write."""
