"""The language of programs: flows, sources, fluent methods, and pictures of a program."""
