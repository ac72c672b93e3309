"""`python -m htsrl`."""

from htsrl.cli import main

main()
