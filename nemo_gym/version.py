"""The version and the package's name, alone in their file so that asking for them costs nothing."""

__package_name__ = "nemo_gym"
__version__ = "0.1.0"
