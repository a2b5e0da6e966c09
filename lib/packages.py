"""Import what only some runs need."""

import importlib


def need_package(name, why):
    """Import a package that only some runs need; ValueError that says how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ValueError(f"need the package {name} to {why} (pip install {name}), got: {error}"
                         ) from None
