"""Scores as the papers of published benchmarks define them."""
