"""``python -m ssl_hub`` is the command, where no script of that name is on the path: ``torchrun -m ssl_hub train``."""

from ssl_hub.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
