"""Whether an explanation is true: what the model does when the parts that it names are taken away."""
