"""A panel of models labels memes, people decide what is left open, and every decision is kept with who and why."""
