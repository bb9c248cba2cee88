"""The release that is imitated."""

__version__ = "0.23.0"
