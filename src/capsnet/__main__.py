"""``python -m capsnet`` is the ``capsnet`` command."""

from capsnet.cli import main

if __name__ == "__main__":
    main()
