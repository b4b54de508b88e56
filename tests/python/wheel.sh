#!/bin/sh
# SPDX-License-Identifier: MIT
# wheel.sh PYTHON LIBRARY ROOT WORK [NOTEBOOK]: builds the wheel, installs it into an empty
# environment, and runs the tests there, with a short form of the notebook; or only the NOTEBOOK, in
# full. It needs no network: NumPy, pytest, matplotlib and Jupyter are PYTHON's.
set -eu
python=$1 library=$2 root=$3 work=$4 notebook=${5-}
for tool in patchelf readelf ldd cc dpkg-query; do
    command -v "$tool" >/dev/null || {
        echo "skipped: no $tool; on Debian: third_party/setup.sh wheel"
        exit 77
    }
done
"$python" -c 'import ensurepip, numpy, pytest, venv' 2>/dev/null || {
    echo "skipped: $python has no venv, NumPy or pytest; third_party/setup.sh wheel"
    exit 77
}
[ -z "$notebook" ] || "$python" -c 'import matplotlib' 2>/dev/null || {
    echo "skipped: $python has no matplotlib; third_party/setup.sh notebook"
    exit 77
}
[ -z "$notebook" ] || [ -d /usr/share/datasets/fashion-mnist ] || {
    echo "skipped: no Fashion-MNIST; third_party/setup.sh data"
    exit 77
}
rm -rf -- "$work"
mkdir -p -- "$work"
"$python" "$root/src/python/build_wheel.py" "$library" "$work"
"$python" -m venv "$work/venv"
"$python" -c 'import site; print("\n".join(site.getsitepackages()))' \
    >"$("$work/venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')/others.pth"
"$work/venv/bin/pip" install --quiet --no-index --no-deps --disable-pip-version-check "$work"/*.whl
cp -- "$root"/tests/python/*.py "$work"
cd -- "$work"
if [ -n "$notebook" ]; then
    exec venv/bin/python notebook.py "$notebook" ${LOCKSTEP_PICTURES:+--pictures "$LOCKSTEP_PICTURES"}
fi
LOCKSTEP_INCLUDE=$root/include exec venv/bin/python -m pytest -q -p no:cacheprovider
