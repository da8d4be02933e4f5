"""The release of this package; that of the daemon is in Client.info()."""

__version__ = "0.1.0"
