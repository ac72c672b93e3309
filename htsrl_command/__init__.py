"""The command `htsrl`. A package of its own, so that Ctrl-C is understood while htsrl is still being imported."""

import sys

EXIT_INTERRUPTED = 130


def main() -> None:
    try:
        from htsrl.cli.main import main as run_command  # takes half a second

        run_command()
    except KeyboardInterrupt:
        print("\ninterrupted before anything was begun", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
