"""The wait of a new user: empty code caches and new processes (`bench.cold.command`)."""
