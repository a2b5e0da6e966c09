"""Put an object round a model that offers all that the model offers."""

from dataclasses import dataclass
from typing import Any


@dataclass(eq=False)  # two wrappers are equal only if they are one object
class Around:
    """Hold a model; offer its attributes, such as n_ctx and params."""

    model: Any

    def __getattr__(self, name):
        # Called for names that the wrapper lacks. Copy and pickle ask for names such as
        # __deepcopy__ before `model` is set, and would ask for `model` without end.
        if name.startswith("__") or name == "model":
            raise AttributeError(name)
        return getattr(self.model, name)
