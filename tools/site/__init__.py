"""The documentation as a site: hooks for MkDocs, pages that have their source elsewhere, a check of the result."""
