"""What is installed and what computes: what could change the numbers of a run."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from typing import Any

_VERSIONED = ("meme-xai", "torch", "torchvision", "transformers", "tokenizers", "lxt", "zennit", "captum", "numpy")
_VARIABLES = ("ATEN_CPU_CAPABILITY", "CUBLAS_WORKSPACE_CONFIG", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA")
"""Environment variables that choose other kernels."""


def installed_versions() -> dict[str, str]:
    """The versions of Python and of the packages that a run depends on, as ``run.json`` has them."""
    found = {"python": platform.python_version()}
    for name in _VERSIONED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def computing_environment() -> dict[str, Any]:
    """The system and, where torch is loaded, its kernels, threads and settings, in JSON values.

    Nothing of it names the machine or its user.
    """
    found: dict[str, Any] = {"system": platform.system(), "machine": platform.machine()}
    found |= {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    # What has not loaded torch has computed nothing with it, and need not wait for it.
    return found | (_of_torch() if "torch" in sys.modules else {})


def _of_torch() -> dict[str, Any]:
    import torch

    found: dict[str, Any] = {
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "mkldnn": torch.backends.mkldnn.is_available(),  # type: ignore[no-untyped-call]
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
    }
    return found | (_of_cuda() if torch.cuda.is_available() else {})


def _of_cuda() -> dict[str, Any]:
    import torch

    names = {torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())}
    return {
        "gpus": sorted(names),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "tf32_matmul": torch.backends.cuda.matmul.allow_tf32,
        "tf32_cudnn": torch.backends.cudnn.allow_tf32,
    }
