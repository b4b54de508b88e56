# SPDX-License-Identifier: MIT
"""NVIDIA's libraries in a process with PyTorch.

The plugin for GPUs and PyTorch use libraries of the same names (libcudnn.so.9, libnccl.so.2), and a process has only
one library of a name: whoever comes second gets the copy of the one who came first. A copy that is older than
PyTorch's can lack functions that PyTorch needs, and `import torch` then fails. Therefore PyTorch's copies are loaded
before the plugin, if PyTorch is installed and has not been imported. PyTorch itself is not imported.
"""
import ctypes
import importlib.util
import json
import os
import re
import struct
import sys
from pathlib import Path

from ._library import Error

_OURS = re.compile(r"lib(cudart|nvJitLink|nvrtc|cublasLt|cublas|cudnn|nccl|cupti)\.so\.\d+$")
_ORDER = ("cudart", "nvJitLink", "nvrtc", "cublasLt", "cublas", "cudnn", "nccl", "cupti")  # what others need comes first


def _dynamic(file):
    """Yields the pairs (tag, text) of an ELF file's dynamic section whose values are texts."""
    header = struct.unpack("<16sHHIQQQIHHHHHH", file.read(64))
    if header[0][:6] != b"\x7fELF\x02\x01":
        return
    file.seek(header[5])
    segments = [struct.unpack("<IIQQQQQQ", file.read(56)) for _ in range(header[10])]

    def at(address):
        return next(offset + address - start for kind, _, offset, start, _, size, _, _ in segments
                    if kind == 1 and start <= address < start + size)

    entries = []
    for kind, _, offset, _, _, size, _, _ in segments:
        if kind == 2:
            file.seek(offset)
            entries = list(struct.iter_unpack("<qQ", file.read(size)))
    values = dict(entries)
    if 5 not in values:
        return
    file.seek(at(values[5]))
    texts = file.read(values[10])
    for tag, value in entries:
        if tag in (1, 15, 29):  # NEEDED, RPATH, RUNPATH
            yield tag, texts[value:texts.index(b"\0", value)].decode()


def _needs_of(path):
    """Returns the names of the libraries that a library needs, and the folders in which it looks for them."""
    with open(path, "rb") as file:
        found = list(_dynamic(file))
    folders = [folder.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", str(path.parent))
               for tag, text in found if tag != 1 for folder in text.split(":")]
    return [text for tag, text in found if tag == 1], folders


def _loads(name, mode=0):
    try:
        ctypes.CDLL(name, mode=ctypes.DEFAULT_MODE | mode)
    except OSError as why:
        return str(why)
    return None


def _copies(torch):
    """Yields (name, path) for each of NVIDIA's libraries that both PyTorch and the plugin can need. The path is the
    name if PyTorch leaves the search to the loader."""
    copies = {}
    for library in ("libtorch_cuda.so", "libtorch_cpu.so"):
        path = torch / "lib" / library
        if path.exists():
            names, folders = _needs_of(path)
            beside = [str(folder) for folder in sorted(torch.parent.glob("nvidia/*/lib"))]
            for name in filter(_OURS.match, names):
                found = (os.path.join(folder, name) for folder in folders + beside)
                copies.setdefault(name, next(filter(os.path.exists, found), name))
    return sorted(copies.items(), key=lambda copy: _ORDER.index(_OURS.match(copy[0])[1]))


def _may_use_gpu(config, assignments):
    """Returns whether a config can ask for a GPU. A config that cannot be read counts as one that can; the library
    reports what is wrong with it."""
    devices = assignments.get("devices")
    if devices is None:
        try:
            if config is not None and not isinstance(config, dict):
                config = json.loads(Path(config).read_text())
            devices = (config or {}).get("devices", "auto")
        except (OSError, ValueError, AttributeError, TypeError):
            return True
    return not re.fullmatch(r"\s*cpu\b[^a-z]*", str(devices))


def share(config=None, assignments=None):
    """Loads PyTorch's copies of NVIDIA's libraries, if a run with this config can load the plugin for GPUs. If they
    cannot be loaded, raises an Error, because the plugin's own copies would make a later `import torch` fail."""
    if "torch" in sys.modules or not _may_use_gpu(config, assignments or {}) or _loads("libcuda.so.1"):
        return
    try:
        torch = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        torch = None
    if torch is None or not torch.origin:
        return
    for name, path in _copies(Path(torch.origin).parent):
        failed = _loads(name, os.RTLD_NOLOAD) and _loads(path)
        if failed:
            raise Error("LS_EDEVICE", f"PyTorch is installed and its {name} does not load ({failed}): import torch first, so that "
                        "both use the same libraries, or train on CPUs (\"devices\": \"cpu\")")
