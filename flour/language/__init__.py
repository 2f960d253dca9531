"""How programs are written: flows, sources, fluent methods, and pictures of a program."""
