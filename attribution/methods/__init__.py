"""Attribution methods by name; importing the package registers those that ship, in the order of their list."""

from __future__ import annotations

from xai.attribution.methods import gradients, perturbation  # noqa: F401

# isort: split
from xai.attribution.methods import attention  # noqa: F401

# isort: split
from xai.attribution.methods import chance  # noqa: F401

# isort: split
from xai.attribution.methods.registry import Method, get_method, method, methods

__all__ = ["Method", "get_method", "method", "methods"]
