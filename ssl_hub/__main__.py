"""``python -m ssl_hub`` is the command ``ssl-hub``."""

from ssl_hub.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
