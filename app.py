"""The page: `python app.py` serves the chat page and the API, and opens a browser."""

import sys

from local_tp.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["serve", "--browser", *sys.argv[1:]]))
