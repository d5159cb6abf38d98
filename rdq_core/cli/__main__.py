"""`python -m rdq_core.cli` is `rdq`."""

from rdq_core.cli import main

main()
