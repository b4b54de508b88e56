# SPDX-License-Identifier: MIT
"""Checks what `trainer verify` says of files: which are the prover's, which are missing, which are others. Each cure in a
message is followed, and must work.

    verify_files.py TRAINER
"""
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

TRAINER = os.path.abspath(sys.argv[1])
REPLAYED = "verified: the whole training was replayed and ends with the same weights"


def call(*arguments, code=0):
    done = subprocess.run([TRAINER, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return (done.stdout + done.stderr).strip()


def verify(what, *more, code=0):
    said = call("verify", what, "--all", "--devices", "cpu:1", "--quiet", *more, code=code)
    length = re.search(r", after \d+ steps \(\d+ epochs\)", said)
    assert (length is not None) == (code == 0), said
    return said.replace(length.group(), "", 1) if length else said


def cures(said, **paths):
    """Returns the assignments that a message proposes, with the paths in place of FILE."""
    keys = re.findall(r"--set ([a-z_.]+)=FILE", said)
    assert keys, said
    return [word for key in keys for word in ("--set", f"{key}={paths[key.replace('.', '_')]}")]


def write_table(path, rows, seed):
    draw = random.Random(seed)
    lines = ["a,b,y"]
    for _ in range(rows):
        a, b = draw.uniform(-1, 1), draw.uniform(-1, 1)
        lines.append(f"{a:.3f},{b:.3f},{'uv'[a > b]}")
    path.write_text("\n".join(lines) + "\n")


def train(run, **config):
    """Trains 105 steps, so that the chain has an entry."""
    whole = {"batch_size": 256, "epochs": 105, "eval_every": 0, "receipt": True, "checkpoint": {"keep": 1},
             "optimizer": {"name": "sgd", "lr": 0.05},
             "model": {"layers": [{"type": "dense", "name": "d"}]}, "run_dir": str(run)} | config
    path = run.with_suffix(".json")
    path.write_text(json.dumps(whole))
    call(path, "--devices", "cpu:1", "--quiet")
    return run


def prover_files(run):
    listed = json.loads((run / "verified.json").read_text())["prover_files"]
    return [(f["key"], f["path"]) for f in listed]


def check_whose(folder, run):
    """The sentence and verified.json name each file that is the prover's, and no other."""
    whose = {"data.path": "the training rows are the prover's", "data.test_path": "the test rows are the prover's",
             "init.weights": "the first weights are the prover's"}
    path = {"data.path": folder / "train.csv", "data.test_path": folder / "test.csv", "init.weights": folder / "first.safetensors"}
    for own in ([], ["data.path"], ["data.test_path"], ["data.path", "data.test_path"], list(path)):
        said = verify(run, *[word for key in own for word in ("--set", f"{key}={path[key]}")])
        theirs = [key for key in path if key not in own]
        wanted = "".join(f"; {whose[key]}: {key}={path[key]}" for key in theirs)
        if "init.weights" in own:
            wanted += f"; the first weights are those of a file: init.weights={path['init.weights']}"
        assert said == REPLAYED + wanted, (own, said)
        assert prover_files(run) == [(key, str(path[key])) for key in theirs], (own, prover_files(run))
    (run / "easy\n.csv").write_text((folder / "test.csv").read_text())
    verify(run, "--set", "data.test_path=" + str(run / "easy\n.csv"))
    assert [key for key, _ in prover_files(run)] == ["data.path", "init.weights"], "a file of the verifier's is listed"


def check_arrays(folder):
    """A path of an array that leads out of data.path is the prover's, whatever data.path the verifier names."""
    data = folder / "arrays"
    data.mkdir()

    def npy(name, kind, shape, values):
        head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
        head += " " * (63 - (10 + len(head)) % 64) + "\n"
        (data / name).write_bytes(b"\x93NUMPY\1\0" + len(head).to_bytes(2, "little") + head.encode() + bytes(values))
    npy("x.npy", "|u1", "(256, 4)", [i * 37 % 251 for i in range(1024)])
    npy("y.npy", "|u1", "(256,)", [i * 37 * 4 % 251 > 120 for i in range(256)])
    run = train(folder / "of_arrays", data={"name": "npy", "path": str(data), "x": "x.npy", "y": "y.npy", "test_x": str(data / "x.npy"),
                                            "test_y": str(data / "y.npy")})
    x, y = (f"; {what} are the prover's: data.{key}={data / name}" for what, key, name in
            (("the test rows", "test_x", "x.npy"), ("the targets of the test rows", "test_y", "y.npy")))
    assert verify(run) == REPLAYED + f"; the rows are the prover's: data.path={data}" + x + y
    assert verify(run, "--set", f"data.path={data}") == REPLAYED + x + y
    assert [key for key, _ in prover_files(run)] == ["data.test_x", "data.test_y"]
    own = ("--set", f"data.path={data}", "--set", "data.test_x=x.npy", "--set", "data.test_y=y.npy")
    assert verify(run, *own) == REPLAYED and prover_files(run) == []


def check_missing(folder, run):
    """A file that is not there is named with its own key; a receipt alone asks for the data."""
    moved = folder / "moved"
    for key, name in (("data.path", "train.csv"), ("data.test_path", "test.csv"), ("init.weights", "first.safetensors")):
        (folder / name).rename(moved)
        said = verify(run, code=66)
        assert f"{folder / name}: no such file; name your copy: --set {key}=FILE" in said, said
        assert verify(run, *cures(said, **{key.replace(".", "_"): moved})).startswith(REPLAYED)
        moved.rename(folder / name)
    alone = folder / "alone"
    alone.mkdir()
    shutil.copy(run / "receipt.json", alone)
    said = verify(alone / "receipt.json", code=78)
    assert "receipt.json: a receipt does not say where the data are; name your copy: --set data.path=FILE" in said, said
    both = cures(said, data_path=folder / "train.csv", data_test_path=folder / "test.csv")
    assert verify(alone / "receipt.json", *both).startswith("verified: the whole training was replayed")
    said = verify(alone / "receipt.json", *both[:2], code=1)
    assert "receipt.json: data.test.file_sha256 is " in said and "the verifier's data have no test rows" in said, said
    assert verify(alone / "receipt.json", *both[:2], *cures(said, data_test_path=folder / "test.csv")).startswith("verified")


def check_network(folder, run):
    """The ONNX file with which training began is asked for; config.json has its layers without the weights."""
    call("export", run, "--to", folder / "net.onnx")
    network = {"onnx": str(folder / "net.onnx")}
    data = json.loads((run / "config.json").read_text())["data"]
    of_network = train(folder / "of_network", data=data | {"standardize": False}, model=network)
    places = [word for key in ("path", "test_path") for word in ("--set", f"data.{key}={data[key]}")]
    said = verify(of_network, *places, code=78)
    assert "receipt.json: the first weights were in an ONNX file; name your copy: --set 'model={" in said, said
    cure = re.search("--set '(model=.*?)'", said).group(1).replace("FILE", network["onnx"])
    assert verify(of_network, *places, "--set", cure) == REPLAYED


def check_others(folder, run):
    """The message about another file names it, and says whether its rows are the same."""
    text = (folder / "train.csv").read_text()
    for name, data, what in (("crlf.csv", text.replace("\n", "\r\n"), "the same rows in another file"),
                             ("less.csv", text[:text.rindex("\n", 0, -1) + 1], "other rows")):
        (folder / name).write_bytes(data.encode())
        said = verify(run, "--set", f"data.path={folder / name}", code=1)
        assert said.startswith('NOT verified: receipt.json: data.training.file_sha256 is "'), said
        assert said.endswith(f'" ({folder / name}): {what}'), said
    (folder / "crlf.csv").write_bytes((folder / "test.csv").read_text().replace("\n", "\r\n").encode())
    said = verify(run, "--set", f"data.test_path={folder / 'crlf.csv'}", code=1)
    assert "data.test.file_sha256" in said and said.endswith(f'" ({folder / "crlf.csv"}): the same rows in another file'), said


def check_edited_recipe(folder, run):
    """A recipe that was edited, without the chain, is told from a checkpoint that was changed."""
    forged = folder / "forged"
    shutil.copytree(run, forged)

    def edit(name, change):
        lines = (forged / name).read_text().splitlines()
        first = json.loads(lines[0] if name == "metrics.jsonl" else "\n".join(lines))
        change(first)
        rest = lines[1:] if name == "metrics.jsonl" else []
        (forged / name).write_text("\n".join([json.dumps(first, separators=(",", ":")), *rest]) + "\n")
    edit("receipt.json", lambda r: [r[part]["optimizer"].update(lr=0.06) for part in ("recipe", "hashed")])
    edit("config.json", lambda c: c["optimizer"].update(lr=0.06))
    edit("metrics.jsonl", lambda r: r["config"]["optimizer"].update(lr=0.06))
    where = "the checkpoint step-000000100.safetensors at its end does not have the state that the receipt names"
    said = verify(forged, code=1)
    assert where + ", but with the checkpoint's own recipe it does: the recipe of the receipt was edited: " in said, said
    assert '"lr":0.05' in said and '"lr":0.06' in said, said
    shutil.rmtree(forged)
    shutil.copytree(run, forged)
    last = sorted((run / "checkpoints").iterdir())[-1]
    shutil.copy(last, forged / "checkpoints/step-000000100.safetensors")
    said = verify(forged, code=1)
    assert where + ": the checkpoint was changed, or the receipt was" in said, said
    other = train(folder / "other", data=json.loads((run / "config.json").read_text())["data"], optimizer={"name": "sgd", "lr": 0.03})
    shutil.copy(other / "checkpoints/step-000000100.safetensors", forged / "checkpoints")
    said = verify(forged, code=1)
    assert where + ", and has another recipe: it is that of another run, or was changed, or the receipt was: " in said, said


def check_report(folder, run):
    """What `report` proposes for data that were moved, it accepts."""
    for key, name in (("data.path", "train.csv"), ("data.test_path", "test.csv")):
        moved = folder / "moved.csv"
        (folder / name).rename(moved)
        said = call("report", run)
        wanted = f"{folder / name}: the run's data are not there; name where they are now: --set {key}=WHERE"
        assert wanted in said, said
        bare = (run / "report.html").read_text().count('"type":"samples"')
        assert call("report", run, "--set", f"{key}={moved}") == f"{run}/report.html"
        assert (run / "report.html").read_text().count('"type":"samples"') == bare + 1, "the page has no predictions"
        assert wanted in call("eval", run, code=66)
        call("eval", run, "--set", f"{key}={moved}")
        moved.rename(folder / name)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_table(folder / "train.csv", 512, 1)
        write_table(folder / "test.csv", 64, 2)
        data = {"name": "csv", "path": str(folder / "train.csv"), "test_path": str(folder / "test.csv"), "target": "y"}
        first = train(folder / "first", data=data, epochs=1, receipt=False)
        shutil.copy(first / "weights.safetensors", folder / "first.safetensors")
        run = train(folder / "run", data=data, init={"weights": str(folder / "first.safetensors")})
        for check in (check_whose, check_missing, check_network, check_others, check_report):
            check(folder, run)
        check_arrays(folder)
        check_edited_recipe(folder, train(folder / "plain", data=data))


if __name__ == "__main__":
    main()
