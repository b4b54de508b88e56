# SPDX-License-Identifier: MIT
# The package `torch` of tests/plugin/beside_torch.py: it loads a library that needs NVIDIA's libraries.
import ctypes
from pathlib import Path

ctypes.CDLL(str(Path(__file__).parent / "lib" / "libtorch_cuda.so"), mode=ctypes.RTLD_GLOBAL).stub_torch_version()
