"""The pages of the explorer, a module each with one function ``show``."""
