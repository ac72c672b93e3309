"""`python -m htsrl`."""

from htsrl.cli.main import main

main()
