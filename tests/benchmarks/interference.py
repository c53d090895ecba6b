"""What learning costs the chat; the measurement itself comes with the program, see `app.bench`.

python -m tests.benchmarks.interference [--json] [--units N] [--gap SECONDS]
"""

from __future__ import annotations

import sys

from app.bench import main

if __name__ == "__main__":
    sys.exit(main(["interference", *sys.argv[1:]]))
