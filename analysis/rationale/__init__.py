"""How far what carries the relevance is what the model says it used."""
