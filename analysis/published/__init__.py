"""The predictions of published benchmarks scored as their papers score them."""
