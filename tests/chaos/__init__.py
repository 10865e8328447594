"""Chaos: queries run with adaptation forced at every task, by random decisions, and give the interpreter's answers."""
