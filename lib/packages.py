"""Import a package that only some runs need."""

import importlib


def package(name, users, file):
    """Return the package `name`; ValueError that names the command if it is missing.

    `users` says what needs it, and requirements/ has the file.

    >>> package("missing", "patterns need", "pattern.txt")
    Traceback (most recent call last):
    ValueError: patterns need the package missing: pip install -r requirements/pattern.txt
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise ValueError(f"{users} the package {name}: pip install -r requirements/{file}"
                         ) from None
