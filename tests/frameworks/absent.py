"""Replace packages that need a GPU, so that the CPU code of a trainer can be imported."""

from __future__ import annotations

import sys
from abc import ABCMeta
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from unittest.mock import MagicMock


class _AnyClass(ABCMeta):
    """The type of classes that have every attribute and that any class may inherit from."""

    def __getattr__(cls, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)


class _AbsentModule(ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__version__ = "0"

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return _AnyClass(name, (), {})


class _Absent(MetaPathFinder, Loader):
    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in self.names else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _AbsentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module as it is: it has every name."""


def replace_packages(*names: str) -> None:
    """Make imports of these packages and of their modules succeed in this process, with any name."""
    sys.meta_path.insert(0, _Absent(names))
