"""Version and name of the package, in a file of their own so that importing them is cheap."""

__package_name__ = "nemo_gym"
__version__ = "0.2.0"
