"""Where relevance comes from: rules, patching, targets, methods, words and heatmaps."""
