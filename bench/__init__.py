"""Measures dflock: see README.md."""
