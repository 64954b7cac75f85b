"""The `ng` program as `python -m nemo_gym`."""

import sys

from nemo_gym.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
