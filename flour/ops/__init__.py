"""The operators, one family a file.

A new family needs no entry anywhere: scripts/generate.py writes the index by which the module of an
operator is found when it is first asked for, so that a process imports only what its programs use.
"""
