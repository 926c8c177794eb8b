# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What pip calls to build the package: meson-python, after a line about what that will take, since pip
shows nothing of a build but a spinner."""
import os
import shutil

import mesonpy
from mesonpy import build_editable, build_sdist, get_requires_for_build_editable, get_requires_for_build_sdist

__all__ = ["build_editable", "build_sdist", "build_wheel", "get_requires_for_build_editable",
           "get_requires_for_build_sdist", "get_requires_for_build_wheel"]

# Estimates for one core. `time pip install -Csetup-args=-Dcuda=disabled .` took 180 seconds of processor
# time, the kernels of two GPU architectures 156, which one process compiles.
_SECONDS, _SECONDS_OF_CUDA = 240, 200


def _say(text):
    """On pip's own standard error: what a backend prints itself pip keeps for failures."""
    try:
        with open(f"/proc/{os.getppid()}/fd/2", "w", encoding="utf-8") as error:
            error.write(text + "\n")
    except OSError:
        pass


def _has_nvcc():
    return bool(shutil.which("nvcc") or os.path.exists("/usr/local/cuda/bin/nvcc"))


def get_requires_for_build_wheel(config_settings=None):
    cores = len(os.sched_getaffinity(0))
    cuda = _has_nvcc() and "cuda=disabled" not in str(config_settings)
    alone = _SECONDS_OF_CUDA if cuda else 0
    minutes = max(alone, (_SECONDS + alone) / cores) / 60
    _say(f"winnow: pip compiles the library of winnow now, {'with' if cuda else 'without'} GPU kernels: "
         f"about {max(1, round(minutes))} minutes on {cores} cores (pip install -v shows the steps"
         + ("; -Csetup-args=-Dcuda=disabled leaves the GPU out)" if cuda else ")"))
    return mesonpy.get_requires_for_build_wheel(config_settings)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return mesonpy.build_wheel(wheel_directory, config_settings, metadata_directory)
