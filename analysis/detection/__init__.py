"""How well a run detects: hierarchical and flat scores, baselines, confusion, calibration, comparisons."""
