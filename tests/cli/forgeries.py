# SPDX-License-Identifier: MIT
"""Forges a run in every way of a table, and checks that `trainer verify` notices each forgery and names
its place. What proves nothing is listed with the reason.

    forgeries.py TRAINER [short]

`short`: only one forgery of each kind.
"""
import copy
import hashlib
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
from free_port import free_port  # noqa: E402

TRAINER, SHORT = os.path.abspath(sys.argv[1]), "short" in sys.argv[2:]

CONFIG = {
    "data": {"name": "csv", "target": "y", "labels": "values"}, "batch_size": 256, "shards": 2, "epochs": 105,
    "eval_every": 21, "ema": 0.5, "receipt": True, "checkpoint": {"keep": 1}, "seed": 5,
    "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9},
    "model": {"layers": [{"type": "dense", "name": "a", "out": 4}, {"type": "relu"},
                         {"type": "dense", "name": "b", "out": 1}]},
}

# Members of a receipt whose change proves nothing.
NO_CLAIM = {
    "program": "the version of the program, not that of the kernels (library)",
    "evaluations.patience": "with this patience the run ends in the same way",
}
# Members that a message names in another way.
NAMED_AS = {"end.steps": ["end.link"], "end.state": ["end.link"], "first_weights": ["chain[0].link"],
            "library": ["the run was made with"], "recipe.data.name": ["data.name"],
            "recipe.model.layers.2.out": ["its recipe", "dense 'b'"], "evaluations.eval_every": ["metrics.jsonl:"],
            "evaluations.data.unknown": ["its recipe or evaluations"]}
# Keys of records whose change proves nothing: times, and what the run was made with.
NO_CLAIM_OF_RECORDS = {"time", "lockstep", "devices", "device_model", "instruction_set", "library",
                       "batch_per_device", "device_bytes", "images_per_s", "workers", "seconds",
                       "seconds_per_epoch", "checkpoint", "source"}


# ---- files ---------------------------------------------------------------------------------------

def write_table(path, rows, seed):
    draw = random.Random(seed)
    lines = ["p,q,y"]
    for _ in range(rows):
        p, q = draw.uniform(-1, 1), draw.uniform(-1, 1)
        lines.append(f"{p:.4f},{q:.4f},{p * q + p + draw.gauss(0, 0.1):.4f}")
    path.write_text("\n".join(lines) + "\n")


def read_checkpoint(path):
    """Returns the header and the bytes of the tensors."""
    raw = path.read_bytes()
    length, = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8:8 + length]), raw[8 + length:]


def write_checkpoint(path, header, data):
    """Writes a checkpoint with the SHA-256 that it should have."""
    notes = header["__metadata__"]
    notes["sha256"] = "0" * 64

    def whole():
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        return struct.pack("<Q", len(text)) + text + data
    notes["sha256"] = hashlib.sha256(whole()).hexdigest()
    path.write_bytes(whole())


def change_tensor(path, name):
    header, data = read_checkpoint(path)
    at, data = header[name]["data_offsets"][0], bytearray(data)
    data[at] ^= 1
    write_checkpoint(path, header, bytes(data))


def change_state(path, change):
    header, data = read_checkpoint(path)
    state = json.loads(header["__metadata__"]["lockstep"])
    change(state)
    header["__metadata__"]["lockstep"] = json.dumps(state, separators=(",", ":"))
    write_checkpoint(path, header, data)


# ---- runs ----------------------------------------------------------------------------------------

def train(folder, name, *more, **config):
    run = folder / name
    text = CONFIG | config | {"run_dir": str(run)}
    text["data"] = text["data"] | {"path": str(folder / "train.csv"), "test_path": str(folder / "test.csv")}
    (folder / (name + ".json")).write_text(json.dumps(text))
    call = [TRAINER, str(folder / (name + ".json")), "--devices", "cpu:1", "--quiet", *more]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return run


def resume(run, steps, *more):
    call = [TRAINER, "--resume", str(run), "--at", str(steps), "--devices", "cpu:1", "--quiet", *more]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def verify(what, *more):
    call = [TRAINER, "verify", str(what), "--devices", "cpu:1", "--quiet", *more]
    done = subprocess.run(call, capture_output=True, text=True, cwd=pathlib.Path(what).parent)
    return done.returncode, done.stdout + done.stderr


def checkpoint(run, steps):
    return run / "checkpoints" / f"step-{steps:09}.safetensors"


# ---- values --------------------------------------------------------------------------------------

def leaves(node, path=()):
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from leaves(value, path + (key,))
    elif isinstance(node, list) and node:
        for i, value in enumerate(node):
            yield from leaves(value, path + (i,))
    else:
        yield path, node


def name_of(path):
    return ".".join(str(p) for p in path)


def other(value):
    """Returns another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * (1 + 2 ** -52) if value else 1e-9
    if isinstance(value, str) and len(value) == 64:
        return value[:-1] + ("1" if value[-1] == "0" else "0")
    return value + "x" if isinstance(value, str) else 1


def changed(tree, path, value):
    tree = copy.deepcopy(tree)
    node = tree
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return tree


def write_json(path, tree):
    path.write_text(json.dumps(tree, separators=(",", ":"), ensure_ascii=False) + "\n")


# ---- forgeries -----------------------------------------------------------------------------------

class Table:
    """Makes forgeries in copies of an honest run, and collects those that are not noticed."""

    def __init__(self, folder, honest):
        self.folder, self.honest, self.count, self.missed = folder, honest, 0, []

    def copy(self):
        run = self.folder / "forged"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(self.honest, run)
        return run

    def expect(self, what, run, places, *more, all=True):
        """Checks that a forgery is noticed, and that one of `places` is named."""
        code, said = verify(run, *(["--all"] if all else ["--segments", "0"]), *more)
        self.count += 1
        if code == 0 or not any(place in said for place in places):
            self.missed.append(f"{what}: exit {code}: {said.strip()[:300]}")

    def expect_no_claim(self, what, run, why):
        code, said = verify(run, "--all")
        self.count += 1
        if code != 0:
            self.missed.append(f"{what}: proves nothing ({why}), but: {said.strip()[:300]}")


def forge_receipt(t):
    receipt = json.loads((t.honest / "receipt.json").read_text())
    paths = list(leaves(receipt))
    if SHORT:
        short = ("data.test.file_sha256", "chain.1.link", "evaluation.metrics.r2", "weights_sha256", "end.steps",
                 "recipe.optimizer.lr", "epochs")
        paths = [(p, v) for p, v in paths if name_of(p) in short]
        assert len(paths) == len(short), paths
    for path, value in paths:
        run = t.copy()
        write_json(run / "receipt.json", changed(receipt, path, other(value)))
        name = name_of(path)
        keys = [str(k) for k in path if isinstance(k, str)]
        if name in NO_CLAIM:
            t.expect_no_claim("receipt: " + name, run, NO_CLAIM[name])
        else:
            t.expect("receipt: " + name, run, [keys[-1], keys[0] + "["] + NAMED_AS.get(name, []))
    for what, tree in (("a member more", receipt | {"gpu": "H100"}),
                       ("a member less", {k: v for k, v in receipt.items() if k != "weights_file_sha256"})):
        run = t.copy()
        write_json(run / "receipt.json", tree)
        t.expect(what, run, ["gpu", "weights_file_sha256"])
    run = t.copy()
    (run / "receipt.json").write_text(json.dumps(receipt, indent=1))
    t.expect("an indented receipt", run, ["not in the form"])


def forge_records(t):
    lines = (t.honest / "metrics.jsonl").read_text().splitlines()
    types = [json.loads(line)["type"] for line in lines]

    def write(changed_lines, what, places):
        run = t.copy()
        (run / "metrics.jsonl").write_text("".join(line + "\n" for line in changed_lines))
        t.expect("records: " + what, run, places)
    for kind in ["step"] if SHORT else ["run_start", "step", "epoch", "eval", "run_end"]:
        at = len(types) - 1 - types[::-1].index(kind)
        record = json.loads(lines[at])
        for path, value in leaves(record):
            if path[0] in NO_CLAIM_OF_RECORDS or path[-1] in NO_CLAIM_OF_RECORDS or path[0] == "config":
                continue
            new = lines[:at] + [json.dumps(changed(record, path, other(value)))] + lines[at + 1:]
            write(new, f"{kind}.{name_of(path)}", ["metrics.jsonl:", f"the record {kind}"])
    at = types.index("step") + 50
    write(lines[:at] + lines[at + 1:], "a step is missing", ["is missing"])
    if SHORT:
        return
    write(lines[:at] + [lines[at]] + lines[at:], "a step twice", [f"metrics.jsonl:{at + 2}"])
    write(lines[:at] + [lines[at + 1], lines[at]] + lines[at + 2:], "steps swapped", ["metrics.jsonl"])
    write(lines[:at], "the end is cut", ["is missing"])
    write(lines[at:], "the beginning is cut", ["metrics.jsonl:1: expected the record with which a run begins"])
    write(lines + [lines[-1]], "two ends", [f"metrics.jsonl:{len(lines) + 1}"])
    write(lines[:at] + ["{}"] + lines[at:], "a record of no type", [f"metrics.jsonl:{at + 1}"])
    write(lines[:at] + [lines[at][:-5]] + lines[at + 1:], "a broken line", [f"metrics.jsonl:{at + 1}"])
    start = json.loads(lines[0])
    write([json.dumps(changed(start, ("config", "seed"), 6))] + lines[1:], "config.seed", ["metrics.jsonl:1", "seed"])


def forge_files(t):
    raw = (t.honest / "weights.safetensors").read_bytes()
    length, = struct.unpack("<Q", raw[:8])
    card = raw.index(b"lockstep_model")
    forged = {"a weight": raw[:-1] + bytes([raw[-1] ^ 1]),
              "the description": raw[:card + 60].replace(b"csv", b"cSv") + raw[card + 60:],
              "a byte more": raw + b"\0"}
    mean = raw.index(b"mean", card)
    digit = next(i for i in range(mean, 8 + length) if raw[i:i + 1].isdigit())
    forged["a scale"] = raw[:digit] + (b"7" if raw[digit:digit + 1] != b"7" else b"3") + raw[digit + 1:]
    for what, data in list(forged.items())[:1 if SHORT else None]:
        if data == raw:
            continue
        run = t.copy()
        (run / "weights.safetensors").write_bytes(data)
        t.expect("weights: " + what, run, ["weights.safetensors"])
    config = json.loads((t.honest / "config.json").read_text())
    for key, value in {"seed": 6, "batch_size": 255}.items():
        run = t.copy()
        write_json(run / "config.json", config | {key: value})
        t.expect("config.json: " + key, run, ["config.json"])
    # none of these is used: the verifier has devices, pictures and places of their own
    run = t.copy()
    write_json(run / "config.json", config | {"devices": "cuda:7", "capacity": [1, 2], "threads": 9, "run_dir": "x"})
    t.expect_no_claim("config.json: devices", run, "the verifier's are used")


def forge_checkpoints(t):
    for name in ["a.weight"] if SHORT else ["a.weight", "optimizer/momentum_buffer/b.bias", "optimizer/weights/a.bias"]:
        run = t.copy()
        header, _ = read_checkpoint(checkpoint(run, 100))
        if name not in header:
            continue
        change_tensor(checkpoint(run, 100), name)
        t.expect("checkpoint: " + name, run, ["checkpoints/step-000000100", "step-000000100.safetensors"], all=False)
    run = t.copy()
    shutil.copy(checkpoint(run, 100), checkpoint(run, 200))
    t.expect("the checkpoint of another step", run, ["step-000000200"], all=False)
    run = t.copy()
    checkpoint(run, 200).unlink()
    t.expect("a checkpoint is missing", run, ["step-000000200"], all=False)
    if SHORT:
        return
    other_run = train(t.folder, "other", "--set", "seed=6")
    run = t.copy()
    shutil.copy(checkpoint(other_run, 200), checkpoint(run, 200))
    t.expect("the checkpoint of another run", run, ["step-000000200"], all=False)
    run = t.copy()
    shutil.copy(other_run / "weights.safetensors", run)
    t.expect("the weights of another run", run, ["weights.safetensors"])
    run = t.copy()
    shutil.copy(other_run / "metrics.jsonl", run)
    t.expect("the records of another run", run, ["metrics.jsonl"])
    run = t.copy()
    shutil.copy(other_run / "receipt.json", run)
    t.expect("the receipt of another run", run, ["config.json"])


def forge_training(t):
    """The prover goes on from a state that the training did not have, and hands over what comes out."""
    def weight(run):
        change_tensor(checkpoint(run, 100), "a.weight")

    def buffer(run):
        change_tensor(checkpoint(run, 200), "optimizer/momentum_buffer/b.weight")

    def rate(run):
        change_state(checkpoint(run, 200), lambda s: s["position"].update(lr=0.02))
    for what, change, at, segment in (("a weight", weight, 100, 2), ("a momentum", buffer, 200, 3)):
        if SHORT and at == 100:
            continue
        run = t.copy()
        change(run)
        resume(run, at)
        t.expect("training: " + what, run, [f"segment {segment} of 3", "step-000000"])
        t.expect("training, drawn: " + what, run, [f"segment {segment} of 3", "step-000000"], "--segments", "9",
                 all=False)
    run = t.copy()
    rate(run)
    resume(run, 200)
    assert (run / "receipt.json").read_text() == (t.honest / "receipt.json").read_text(), \
        "a run with a rate of its own must write no receipt"


def forge_data(t):
    table = t.folder / "train.csv"
    lines = table.read_text().splitlines()
    forged = {"two rows swapped": [lines[0], lines[2], lines[1], *lines[3:]],
              "a value": [lines[0], "0.5,0.5,0.5", *lines[2:]],
              "a row less": lines[:-1]}
    for what, text in list(forged.items())[:1 if SHORT else None]:
        path = t.folder / "forged.csv"
        path.write_text("\n".join(text) + "\n")
        t.expect("data: " + what, t.honest, ["data.training"], "--set", f"data.path={path}")
    path.write_text("\r\n".join(lines) + "\r\n")
    t.expect("data: other line ends", t.honest, ["data.training.file_sha256"], "--set", f"data.path={path}")


def check_unusual(t):
    """Runs that were resumed, that lost a device, and that had two hosts, are verified like any other."""
    run = t.copy()
    resume(run, 100)
    code, said = verify(run)
    assert code == 0, said
    run = train(t.folder, "lost", "--devices", "cpu:2", "--inject", "worker=1,step=120,kind=fail,stage=apply")
    assert '"type":"fault"' in (run / "metrics.jsonl").read_text()
    code, said = verify(run)
    assert code == 0, said
    assert (run / "receipt.json").read_text() == (t.honest / "receipt.json").read_text()
    port = free_port()
    secret = t.folder / "key"
    secret.write_text("x" * 32)
    secret.chmod(0o600)
    text = json.loads((t.folder / "honest.json").read_text()) | {"run_dir": str(t.folder / "two")}
    (t.folder / "two.json").write_text(json.dumps(text))
    call = [TRAINER, str(t.folder / "two.json"), "--devices", "cpu:1", "--quiet", "--members", "2", "--secret",
            str(secret), "--wait", "60"]
    members = [subprocess.Popen(call + place, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
               for place in (["--listen", f"127.0.0.1:{port}"],
                             ["--join", f"127.0.0.1:{port}", "--listen", "127.0.0.1:0"])]
    for member in members:
        said = member.communicate(timeout=120)[1]
        assert member.returncode == 0, said
    code, said = verify(t.folder / "two")
    assert code == 0, said


def check_honest(t):
    run = t.copy()
    for more in ([], ["--all"], ["--all", "--devices", "cpu:2"], ["--segments", "1", "--seed", "7"]):
        code, said = verify(run, *more)
        assert code == 0, (more, said)
    alone = t.folder / "alone"
    alone.mkdir()
    shutil.copy(run / "receipt.json", alone / "r.json")
    places = ["--set", f"data.path={t.folder / 'train.csv'}", "--set", f"data.test_path={t.folder / 'test.csv'}"]
    code, said = verify(alone / "r.json", *places)
    assert code == 0 and "no weights to compare" in said, said
    code, said = verify(alone / "r.json", *places, "--weights", str(run / "weights.safetensors"))
    assert code == 0 and said.startswith("verified"), said
    assert json.loads((alone / "verified.json").read_text())["holds"] is True
    os.remove(run / "receipt.json")
    code, said = verify(run)
    assert code == 66 and "--all" in said, (code, said)
    code, said = verify(run, "--all")
    assert code == 0 and said.startswith("verified"), said
    weights = run / "weights.safetensors"
    header, data = read_checkpoint(weights)
    write_checkpoint(weights, header, data[:-1] + bytes([data[-1] ^ 1]))
    code, said = verify(run, "--all")
    assert code == 1 and "other weights: b" in said, (code, said)
    weights.write_bytes(weights.read_bytes()[:-1] + data[-1:])  # with the checksum of other weights
    code, said = verify(run, "--all")
    assert code == 65 and "weights.safetensors: offset" in said and "the file is damaged" in said, (code, said)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_table(folder / "train.csv", 512, 1)
        write_table(folder / "test.csv", 64, 2)
        t = Table(folder, train(folder, "honest"))
        check_honest(t)
        if not SHORT:
            check_unusual(t)
        for forge in (forge_receipt, forge_records, forge_files, forge_checkpoints, forge_training, forge_data):
            forge(t)
        print(f"{t.count} forgeries")
        for line in t.missed:
            print("NOT NOTICED AS IT SHOULD BE:", line)
        sys.exit(1 if t.missed else 0)


if __name__ == "__main__":
    main()
