"""`python -m local_tp` is the `local-tp` command."""

import sys

from local_tp.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
