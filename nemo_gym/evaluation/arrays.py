"""Import numpy, or raise `LaunchError` with the install command. Only the comparison of runs needs numpy."""

from __future__ import annotations

from nemo_gym.errors import LaunchError

try:
    import numpy as np
    from numpy.typing import NDArray
except ImportError as error:
    raise LaunchError(
        "numpy is required to compare runs, but not installed. Run: pip install 'nemo-gym[eval]'"
    ) from error

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

__all__ = ["Floats", "Integers", "np"]
