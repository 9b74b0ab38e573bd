"""Keyword arguments that a function does not have: the error says what to write instead."""
