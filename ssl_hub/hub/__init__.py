"""The store of releases: names to files, and files to models."""
