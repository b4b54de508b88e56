# SPDX-License-Identifier: MIT
"""notebook.py FILE [--short] [--pictures FOLDER]: runs a notebook from its first to its last cell in
Jupyter, or where nbclient and ipykernel are missing without it, and checks what it has come to. The
short form has one epoch of 2,048 rows. 77: matplotlib is missing.
"""
import argparse
import base64
import importlib.util
import json
import os
import pathlib
import sys
import tempfile
import time

SHORT = "EPOCHS = 1\ntrain = [a[:2048] for a in train]\ntest = [a[:1000] for a in test]\n"
SOUND = """
assert survived.weights_sha256 == undisturbed.weights_sha256
assert len({tuple(curve) for curve in curves.values()}) == 1 and len(curves[1]) == EPOCHS
assert probabilities.shape == (len(test[0]), 10)
"""
LEARNT = """
assert curves[1][-1] > 0.75, curves
assert min(exercise.values()) > 0.5, exercise
assert right.mean() > 0.8 and right[:16].sum() >= 12, (right.mean(), right[:16])
"""
PICTURES = 5
KERNEL = "lockstep-test"


def present(*modules):
    return all(importlib.util.find_spec(module) for module in modules)


def add_kernel(folder):
    """Adds a kernel of this Python to Jupyter's. The kernel "python3" may be that of another Python,
    such as the system's, which has no Lockstep."""
    spec = folder / "kernels" / KERNEL
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(json.dumps({
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": KERNEL, "language": "python"}))
    os.environ["JUPYTER_PATH"] = str(folder)


def run_in_jupyter(notebook, folder):
    import nbformat
    from nbclient import NotebookClient
    nb = nbformat.reads(json.dumps(notebook), as_version=4)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as kernels:
        add_kernel(pathlib.Path(kernels))
        NotebookClient(nb, timeout=1200, kernel_name=KERNEL).execute()
    print(f"{time.monotonic() - begun:.1f} s in Jupyter")
    drawn = [output["data"]["image/png"] for cell in nb.cells for output in cell.get("outputs", [])
             if "image/png" in output.get("data", {})]
    said = "".join(output.get("text", "") for cell in nb.cells for output in cell.get("outputs", []))
    print(said)
    for number, picture in enumerate(drawn if folder else [], 1):
        (folder / f"{number}.png").write_bytes(base64.b64decode(picture))
    assert len(drawn) == PICTURES, f"{len(drawn)} pictures"


def run_plainly(notebook):
    os.environ["MPLBACKEND"] = "Agg"
    names = {"__name__": "__main__"}
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            begun = time.monotonic()
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
            print(f"cell {number}: {time.monotonic() - begun:.1f} s", flush=True)


def code(source):
    return {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": source}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--pictures", type=pathlib.Path)
    args = parser.parse_args()
    if not present("matplotlib"):
        print("skipped: this Python has no matplotlib; third_party/setup.sh notebook")
        sys.exit(77)
    notebook = json.loads(args.file.read_text(encoding="utf-8"))
    cells = notebook["cells"]
    for number, cell in enumerate(cells):
        if cell.get("outputs") or cell.get("execution_count") is not None:
            sys.exit(f"cell {number} has outputs, which would outlive what made them")
    if args.short:
        first = next(i for i, cell in enumerate(cells) if cell["cell_type"] == "code")
        cells.insert(first + 1, code(SHORT))
    cells.append(code(SOUND if args.short else SOUND + LEARNT))
    if present("nbclient", "ipykernel"):
        run_in_jupyter(notebook, args.pictures)
    else:
        run_plainly(notebook)


if __name__ == "__main__":
    main()
