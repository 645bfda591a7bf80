"""Verbs of ``python -m hw_validate``; each imports torch only when it runs."""
