"""What maintainers run: bundle weights, write docs/RESULTS.md. Not part of the installed package."""
