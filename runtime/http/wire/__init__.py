"""Connections, messages, settings: HTTP itself."""
