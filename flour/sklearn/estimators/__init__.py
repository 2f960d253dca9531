"""TODO-face"""
