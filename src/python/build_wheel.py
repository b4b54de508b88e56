#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds the wheel. It contains the package, liblockstep.so, liblockstep_picture.so if that file is in the same folder,
the system libraries that these two need, and the licences of all of them.

    build_wheel.py LIBRARY DIRECTORY      as ./dev wheel calls it

The script is also the package's PEP 517 backend; then the environment variable LOCKSTEP_LIBRARY names the library. It
needs patchelf, readelf and ldd. It does not need pip, because a wheel is a zip file with a list of hashes.
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
NAME = "lockstep_trainer"  # the name of the distribution, lockstep-trainer, and the name that programs import
# Libraries that every Linux system of a manylinux tag has (PEP 600). All other libraries are put into the wheel.
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
    """Returns a dict from the name of each library that `library` needs to the path at which the loader finds it."""
    return dict(re.findall(r"(\S+) => (\S+) \(", output("ldd", str(library))))


def closure(libraries):
    """Returns a dict from names to paths: the libraries, and those that the wheel must contain because of them."""
    found, all_places, own = {}, {}, set(EVERYWHERE)
    for library in libraries:
        all_places.update(places(library))
        own.add(soname(library))  # a library that is loaded already is found by its name
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
    """Returns the newest version of glibc that one of the libraries needs, such as (2, 34)."""
    versions = [(2, 17)]
    for library in libraries:
        text = output("readelf", "-V", str(library))
        versions += [(int(a), int(b)) for a, b in re.findall(r"GLIBC_(\d+)\.(\d+)", text)]
    return max(versions)


def licence_of(path):
    """Returns the path of the copyright file of the Debian package that contains a system library."""
    for form in (str(path), str(path.resolve())):
        try:
            package = subprocess.run(("dpkg-query", "-S", form), check=True, capture_output=True,
                                     text=True).stdout.split(":")[0]
            return Path("/usr/share/doc", package, "copyright")
        except (subprocess.CalledProcessError, FileNotFoundError):
            continue
    sys.exit(f"build_wheel.py: {path} is of no Debian package, so its licence is not known")


def copy_licence(path, folder, name):
    """Copies the copyright file of a library to folder/name, and to folder/common-licenses the licences whose text it
    only names: every Debian system has them, but not every one on which the wheel is installed."""
    text = licence_of(path).read_text(encoding="utf-8")
    (folder / name).write_text(text, encoding="utf-8")
    for common in re.findall(r"/usr/share/common-licenses/([\w.+-]*\w)", text):
        (folder / "common-licenses").mkdir(exist_ok=True)
        shutil.copy(Path("/usr/share/common-licenses", common), folder / "common-licenses" / common)


def bundle(library, package):
    """Copies all libraries to package/lib and sets their run-time path to that folder. Returns the platform's tag."""
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
            copy_licence(path, package / "licences", name)
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
    """Writes the zip file, with RECORD as its last entry. Equal files result in equal bytes."""
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
    """Builds the wheel and returns its name."""
    with tempfile.TemporaryDirectory() as work:
        root = Path(work)
        shutil.copytree(HERE / NAME, root / NAME,
                        ignore=shutil.ignore_patterns("__pycache__", "lib", "licences"))
        tag = bundle(Path(library), root / NAME)
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
