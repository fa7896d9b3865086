"""A bulk runner for Comfy Router's queued API: each row generated once, paid once, its media on disk."""

__version__ = "0.1.0"
