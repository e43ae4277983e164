"""How far annotators agree who give an item any number of labels."""
