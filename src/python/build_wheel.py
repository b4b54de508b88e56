#!/usr/bin/env python3
"""Builds the wheel: the package, liblockstep.so, liblockstep_picture.so where that lies beside it, what they need of the
system, and everybody's licence.

    build_wheel.py LIBRARY DIRECTORY      ./dev wheel calls it so

It is the package's PEP 517 backend as well (then LOCKSTEP_LIBRARY names the library). It needs patchelf,
readelf and ldd, and nothing of pip's: a wheel is a zip with a list of hashes.
"""
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAME = "lockstep_trainer"
# What every Linux that a manylinux tag speaks of has (PEP 600); all else goes into the wheel.
EVERYWHERE = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1",
              "libgcc_s.so.1", "libstdc++.so.6", "libz.so.1"}


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def version():
    header = (HERE / "../../include/lockstep/version.h").read_text()
    return re.search(r'#define LS_VERSION "([^"]+)"', header)[1]


def needed(library):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", str(library)))


def soname(library):
    return re.search(r"\(SONAME\).*\[(.*)\]", output("readelf", "-d", str(library)))[1]


def places(library):
    """Where the loader finds what a library needs, by name."""
    return dict(re.findall(r"(\S+) => (\S+) \(", output("ldd", str(library))))


def closure(libraries):
    """The libraries and what goes with them: name → path."""
    found, all_places, own = {}, {}, set(EVERYWHERE)
    for library in libraries:
        all_places.update(places(library))
        own.add(soname(library))  # of one that is loaded already, the loader knows its name
    waiting = [(library.name, library) for library in libraries]
    while waiting:
        name, path = waiting.pop()
        found[name] = path
        for other in needed(path):
            if other not in own and other not in found and not other.startswith("ld-linux"):
                if other not in all_places:
                    sys.exit(f"build_wheel.py: {path} needs {other}, which is not installed")
                waiting.append((other, Path(all_places[other])))
    return found


def glibc(libraries):
    """The newest version of glibc that one of them asks for: (2, 34)."""
    versions = [(2, 17)]
    for library in libraries:
        text = output("readelf", "-V", str(library))
        versions += [(int(a), int(b)) for a, b in re.findall(r"GLIBC_(\d+)\.(\d+)", text)]
    return max(versions)


def licence_of(path):
    """The copyright file of the Debian package that a system's library came with."""
    for form in (str(path), str(path.resolve())):
        try:
            package = subprocess.run(("dpkg-query", "-S", form), check=True, capture_output=True,
                                     text=True).stdout.split(":")[0]
            return Path("/usr/share/doc", package, "copyright")
        except (subprocess.CalledProcessError, FileNotFoundError):
            continue
    sys.exit(f"build_wheel.py: {path} is of no Debian package, so its licence is not known")


def bundle(library, package):
    """Copies all into package/lib, each looking beside itself; → the platform's tag."""
    own = [library] + [p for p in [library.with_name("liblockstep_picture.so")] if p.exists()]
    libraries = closure(own)
    (package / "lib").mkdir()
    (package / "licences").mkdir()
    shutil.copy(HERE / "../../LICENSE", package / "licences" / "lockstep")
    for name, path in libraries.items():
        target = package / "lib" / name
        shutil.copy(path.resolve(), target)
        target.chmod(0o755)
        subprocess.run(["patchelf", "--set-rpath", "$ORIGIN", str(target)], check=True)
        if path not in own:
            shutil.copy(licence_of(path), package / "licences" / name)
    major, minor = glibc((package / "lib").iterdir())
    return f"manylinux_{major}_{minor}_{os.uname().machine}"


def metadata(info, tag):
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: lockstep-trainer\nVersion: {version()}\n"
        "Summary: Data-parallel neural-network training in C, with the same bits on any number of "
        "workers\nLicense: MIT\nRequires-Python: >=3.9\nRequires-Dist: numpy\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nGenerator: build_wheel.py\n"
                                f"Root-Is-Purelib: false\nTag: py3-none-{tag}\n")


def pack(root, wheel, info):
    """A zip with RECORD last, the same bytes for the same files."""
    record = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as z:
        for path in sorted(p for p in root.rglob("*") if p.is_file()):
            name, data = path.relative_to(root).as_posix(), path.read_bytes()
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.external_attr = (path.stat().st_mode & 0o777 | 0o100000) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}\n")
        z.writestr(zipfile.ZipInfo(f"{info.name}/RECORD", (2020, 1, 1, 0, 0, 0)),
                   "".join(record) + f"{info.name}/RECORD,,\n")


def build(library, directory):
    """→ the wheel's name."""
    with tempfile.TemporaryDirectory() as work:
        root = Path(work)
        shutil.copytree(HERE / "lockstep", root / "lockstep",
                        ignore=shutil.ignore_patterns("__pycache__", "lib", "licences"))
        tag = bundle(Path(library), root / "lockstep")
        info = root / f"{NAME}-{version()}.dist-info"
        metadata(info, tag)
        name = f"{NAME}-{version()}-py3-none-{tag}.whl"
        Path(directory).mkdir(parents=True, exist_ok=True)
        pack(root, Path(directory, name), info)
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    library = os.environ.get("LOCKSTEP_LIBRARY")
    if not library:
        sys.exit("lockstep-trainer: LOCKSTEP_LIBRARY names no liblockstep.so; ./dev wheel builds both")
    return build(library, wheel_directory)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(Path(sys.argv[2], build(sys.argv[1], sys.argv[2])))
