"""The explorer: pages that read runs and compute nothing that a report could not."""
