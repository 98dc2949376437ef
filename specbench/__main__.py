"""`python -m specbench` is `specbench`."""

from .cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
