"""`python -m xai.cli`."""

from xai.cli import main

main()
