"""Whether an explanation is true: perturbation curves, planted ground truth, sanity checks."""
