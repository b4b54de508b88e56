# SPDX-License-Identifier: MIT
"""Checks a receipt as docs/verify.md describes it, without the program's own code: the hashes of the
states from the kept checkpoints, the chain of links, the weights.

    receipt.py TRAINER
"""
import hashlib
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

CONFIG = {
    "data": {"name": "synthetic", "limit": 512}, "batch_size": 256, "shards": 2, "epochs": 105, "eval_every": 0,
    "ema": 0.5, "receipt": True, "checkpoint": {"keep": 1}, "init": {"name": "kaiming"},
    "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9},
    "model": {"layers": [{"type": "avg_pool", "kernel": 4},
                         {"type": "conv2d", "name": "c", "out": 2, "kernel": 3},
                         {"type": "batch_norm", "name": "n"}, {"type": "flatten"},
                         {"type": "dense", "name": "d", "out": 10}]},
}


def read_tensors(path):
    """Returns the state's text and the tensors' bytes by name, in the order of the file."""
    raw = path.read_bytes()
    length, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    notes = header.pop("__metadata__")
    names = sorted(header, key=lambda name: header[name]["data_offsets"])
    data = raw[8 + length:]
    return notes["lockstep"], {n: data[slice(*header[n]["data_offsets"])] for n in names}


def state_hash(path, steps, hashed_keys):
    _, tensors = read_tensors(path)
    text = json.dumps(hashed_keys, separators=(",", ":"))
    hashed = hashlib.sha256(b"lockstep state 2\n")
    hashed.update(f'{{"steps":{steps},"recipe":{text}}}\n'.encode())
    for name, data in tensors.items():
        hashed.update(f"{name} {len(data) // 4}\n".encode() + data)
    return hashed.hexdigest()


def check_hashed(receipt):
    """The hashed keys are keys of the recipe with the same values, and not defaults."""
    hashed, recipe = receipt["hashed"], receipt["recipe"]
    assert list(hashed) == sorted(hashed, key=str.encode), list(hashed)
    assert list(hashed) == ["data.limit", "data.name", "ema", "model", "optimizer", "shards"], list(hashed)
    assert hashed["optimizer"] == {"lr": 0.05, "momentum": 0.9}, hashed["optimizer"]
    for name, value in hashed.items():
        inner = recipe
        for key in name.split("."):
            inner = inner[key]
        assert value == inner or value.items() <= inner.items(), name


def check(run):
    receipt = json.loads((run / "receipt.json").read_text())
    assert receipt["format"] == "lockstep receipt 2"
    check_hashed(receipt)
    link = hashlib.sha256(b"lockstep chain 1\n" + bytes.fromhex(receipt["first_weights"])).digest()
    entries = receipt["chain"] + [receipt["end"]]
    assert [e["steps"] for e in entries] == [100, 200, 210], entries
    for e in entries:
        found = state_hash(run / "checkpoints" / f"step-{e['steps']:09}.safetensors", e["steps"],
                           receipt["hashed"])
        assert found == e["state"], (e["steps"], found)
        link = hashlib.sha256(link + struct.pack("<Q", e["steps"]) + bytes.fromhex(e["state"])).digest()
        assert link.hex() == e["link"]
    raw = (run / "weights.safetensors").read_bytes()
    length, = struct.unpack("<Q", raw[:8])
    assert hashlib.sha256(raw[8 + length:]).hexdigest() == receipt["weights_sha256"]
    end = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][-1]
    assert end["weights_sha256"] == receipt["weights_sha256"]
    assert end["test_accuracy"] == receipt["evaluation"]["test_accuracy"]
    assert receipt["data"]["training"]["rows"] == 512
    text = (run / "receipt.json").read_text()
    assert text == json.dumps(receipt, separators=(",", ":")) + "\n", "the receipt is not canonical"
    assert str(run) not in text and "time" not in receipt


def verify(trainer, run):
    def call(*more):
        return subprocess.run([trainer, "verify", str(run), "--devices", "cpu:1", *more], capture_output=True, text=True)

    def page():
        subprocess.run([trainer, "report", str(run)], check=True, capture_output=True)
        return (run / "report.html").read_text()
    # A link that the prover has left in the place of the result is replaced, and its target is not written.
    bystander = run.parent / "bystander"
    bystander.write_text("mine")
    (run / "verified.json").symlink_to(bystander)
    done = call("--all")
    assert done.returncode == 0 and done.stdout.startswith("verified: the whole training"), (done.stdout, done.stderr)
    assert bystander.read_text() == "mine" and not (run / "verified.json").is_symlink()
    verdict = json.loads((run / "verified.json").read_text())
    assert verdict["holds"] is True and verdict["weights_sha256"] == json.loads((run / "receipt.json").read_text())["weights_sha256"]
    weights = (run / "weights.safetensors").read_bytes()
    assert "verified: the whole" in page()
    (run / "weights.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    assert "verified: the whole" not in page(), "the page calls other weights verified"
    (run / "weights.safetensors").write_bytes(weights)
    honest = (run / "receipt.json").read_text()
    forged = json.loads(honest)
    loss = forged["evaluation"]["test_loss"]
    forged["evaluation"]["test_loss"] = loss / 2
    (run / "receipt.json").write_text(json.dumps(forged, separators=(",", ":")))
    done = call("--segments", "0", "--to", str(run) + ".json")
    said = f"NOT verified: receipt.json: evaluation.test_loss is {loss / 2}; the replay has {loss}"
    assert done.returncode == 1 and said in done.stdout, (done.stdout, done.stderr)
    assert json.loads(pathlib.Path(str(run) + ".json").read_text())["place"] == \
        "receipt.json: evaluation.test_loss"
    (run / "receipt.json").write_text(honest)


def check_what_came_later(trainer, folder):
    """A threshold that is kept after the training is no difference, anything else in the file of weights is one. A
    run without a receipt is told from one with a receipt. The number of epochs of a cosine is in two places."""
    lines = [f"{i * 37 % 101},{i * 53 % 97},{'uv'[i * 37 % 101 > 50]}\n" for i in range(40)]
    (folder / "t.csv").write_text("a,b,y\n" + "".join(lines))
    run, config = folder / "table", folder / "table.json"
    config.write_text(json.dumps({
        "data": {"name": "csv", "path": str(folder / "t.csv"), "target": "y", "validation": 0.25}, "epochs": 2,
        "optimizer": {"name": "sgd", "lr": 0.05}, "schedule": "cosine", "receipt": True, "batch_size": 10,
        "model": {"layers": [{"type": "dense", "name": "d"}]}, "run_dir": str(run)}))

    def call(*arguments, code=0):
        done = subprocess.run([trainer, *map(str, arguments)], capture_output=True, text=True)
        assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        return done.stdout.strip()

    def verify(code=0, *more):
        return call("verify", run, "--all", "--devices", "cpu:1", *more, code=code)
    call(config, "--devices", "cpu:1", "--quiet")
    steps = json.loads((run / "receipt.json").read_text())["end"]["steps"]
    replayed = f"verified: the whole training was replayed and ends with the same weights, after {steps} steps (2 epochs)"
    kept = "; the threshold 0.3 in their file was added after the training"
    place = f"; the rows are the prover's: data.path={folder / 't.csv'}"
    assert verify(0, "--set", f"data.path={folder / 't.csv'}") == replayed
    assert verify() == replayed + place
    call("eval", run, "--threshold", "0.3", "--keep")
    assert verify() == replayed + kept + place
    assert verify(0, "--weights", run / "weights.safetensors") == replayed + kept + place
    shutil.copy(run / "weights.safetensors", folder / "copy.safetensors")
    assert verify(0, "--weights", folder / "copy.safetensors") == \
        replayed + "; weights.safetensors of the run was not compared" + kept + place
    assert call("verify", run / "receipt.json", "--devices", "cpu:1", "--set", f"data.path={folder / 't.csv'}") == \
        replayed + "; no records were compared" + kept
    honest, receipt = (run / "weights.safetensors").read_bytes(), (run / "receipt.json").read_text()
    bare = honest.replace(b'"sha256"', b'"former"', 1)  # without the checksum, which also shows the changes
    for forged, said in ((bare.replace(b'\\"u\\",\\"v\\"', b'\\"v\\",\\"u\\"'), "it has the receipt's weights"),
                         (bare[:-1] + bytes([bare[-1] ^ 1]), "with other weights (weights_sha256)"),
                         (honest[:-1] + bytes([honest[-1] ^ 1]), "cannot be read"), (honest[:-1], "cannot be read")):
        assert forged != honest
        (run / "weights.safetensors").write_bytes(forged)
        found = verify(1)
        assert found.startswith("NOT verified: weights.safetensors is another file than that of the receipt") and said in found, found
    (run / "weights.safetensors").write_bytes(honest)
    for part, other in (("recipe", "evaluations"), ("evaluations", "recipe")):
        forged = json.loads(receipt)
        del forged[part]["epochs"]
        (run / "receipt.json").write_text(json.dumps(forged, separators=(",", ":")) + "\n")
        found = verify(1)
        assert found.startswith(f'NOT verified: receipt.json: {part}.epochs is missing, and "{other}" has it'), found
    (run / "receipt.json").unlink()
    best = "; the checkpoint of the best evaluation, step-000000006.safetensors, was not compared"
    assert verify() == replayed + "; there was no receipt" + kept + best + place, verify()
    call(config, "--devices", "cpu:1", "--quiet", "--set", "epochs=3", "--set", f"run_dir={folder / 'more'}", "--set", "receipt=false")
    shutil.copy(folder / "more" / "weights.safetensors", run)
    found = verify(1)
    assert found == f"NOT verified: {run}/weights.safetensors has the weights after step {steps * 3 // 2}, and a run with this config " \
        f"ends after step {steps}", found
    (run / "weights.safetensors").write_bytes(honest)
    honest_config = (run / "config.json").read_text()
    (run / "config.json").write_text(honest_config.replace('"epochs": 2', '"epochs": 1'))
    found = verify(1)
    assert found.startswith("NOT verified: metrics.jsonl:1: the first record has another recipe: ") and "epochs" in found, found
    (run / "config.json").write_text(honest_config)
    (folder / "t.csv").unlink()
    call("verify", run, "--all", "--devices", "cpu:1", code=66)
    assert not (run / "verified.json").exists(), "the result of a former verification stayed"


def check_within_epochs(trainer, folder):
    """Segments begin and end within epochs. Every draw of an honest run's parts is accepted; so is the run that is
    resumed after its end, and its receipt stays the same. What the verifier does wrong is no difference."""
    lines = [f"{i * 37 % 101},{i * 53 % 97},{'uv'[i * 37 % 101 > i * 53 % 97]}\n" for i in range(2000)]
    (folder / "w.csv").write_text("a,b,y\n" + "".join(lines))
    run, config = folder / "within", folder / "within.json"
    config.write_text(json.dumps({
        "data": {"name": "csv", "path": str(folder / "w.csv"), "target": "y", "validation": 0.2}, "epochs": 150,
        "optimizer": {"name": "sgd", "lr": 0.05}, "receipt": True, "batch_size": 256, "run_dir": str(run),
        "model": {"layers": [{"type": "dense", "name": "d"}]}}))

    def call(*arguments, code=0):
        done = subprocess.run([trainer, *map(str, arguments), "--devices", "cpu:1", "--quiet"], capture_output=True, text=True)
        assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr
    call(config)
    receipt = (run / "receipt.json").read_text()
    ends = [e["steps"] for e in json.loads(receipt)["chain"]]
    assert len(ends) > 8 and sum(end % 7 > 0 for end in ends) > 4, ends  # 7 steps an epoch
    for seed in range(1, 17):
        said = call("verify", run, "--segments", 1, "--seed", seed)
        assert said.startswith(f"not refuted: 3 of {len(ends) + 1} segments"), said
    assert json.loads(receipt)["evaluation"]["metrics"]["auc"] > 0
    call("--resume", run)
    assert (run / "receipt.json").read_text() == receipt, "a resume after the end has written another receipt"
    (run / "receipt.json").unlink()
    call("--resume", run)
    assert (run / "receipt.json").read_text() == receipt, "the receipt lacks what was measured before the resume"
    said = call("verify", run, "--set", "epochs=3", code=64)
    assert "an assignment changes epochs, which is 150 in the run, to 3" in said, said
    honest = (run / "config.json").read_text()
    (run / "config.json").write_text(json.dumps(json.loads(honest) | {"of_a_later_version": 1}))
    for more in ((), ("--set", f"data.path={folder / 'w.csv'}")):
        said = call("verify", run, *more, code=78)
        assert 'unknown key "of_a_later_version"' in said and "if a later version made the run" in said, said
    said = call("verify", run / "receipt.json", "--weights", run / "weights.safetensors", "--set", f"data.path={folder / 'w.csv'}")
    assert said.startswith("verified: the whole training"), said
    (run / "receipt.json").unlink()
    (run / "config.json").write_text(honest.replace('"epochs": 150', '"epochs": 149').replace('"lr": 0.05', '"lr": 0.06'))
    said = call("verify", run, "--all", code=1)
    assert "NOT verified: metrics.jsonl:1: the first record has another recipe: " in said and "optimizer: " in said, said
    (run / "config.json").write_text(honest)


def check_end_at_entry(trainer, folder):
    """A run that ends where its chain has an entry: the last segment is the one before that entry. Forged final
    weights are found without any other segment."""
    run, config = folder / "even", folder / "even.json"
    config.write_text(json.dumps(CONFIG | {"run_dir": str(run), "epochs": 200}))
    done = subprocess.run([trainer, str(config), "--devices", "cpu:2", "--quiet"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    receipt = json.loads((run / "receipt.json").read_text())
    chain, end = receipt["chain"], receipt["end"]
    steps = end["steps"]
    assert len(chain) > 2 and chain[-1]["steps"] == steps, (chain, end)

    def verify(*more):
        done = subprocess.run([trainer, "verify", str(run), "--devices", "cpu:1", "--quiet", *more], capture_output=True, text=True)
        return done.returncode, done.stdout, json.loads((run / "verified.json").read_text())
    code, said, verdict = verify("--segments", "0")
    assert code == 0 and f"2 of {len(chain)} segments" in said and verdict["replayed"] == 2, said
    code, said, verdict = verify("--all")
    assert code == 0 and said.startswith("verified") and verdict["replayed"] == verdict["segments"] == len(chain), said
    path = run / "checkpoints" / f"step-{steps:09}.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1  # of the last tensor of the optimizer's state
    header = json.loads(raw[8:8 + struct.unpack("<Q", raw[:8])[0]])
    blank = bytes(raw).replace(header["__metadata__"]["sha256"].encode(), b"0" * 64)
    path.write_bytes(bytes(raw).replace(header["__metadata__"]["sha256"].encode(), hashlib.sha256(blank).hexdigest().encode()))
    forged = state_hash(path, steps, receipt["hashed"])
    link = bytes.fromhex(chain[-2]["link"])
    for entry in (chain[-1], end):
        link = hashlib.sha256(link + struct.pack("<Q", steps) + bytes.fromhex(forged)).digest()
        entry["state"], entry["link"] = forged, link.hex()
    (run / "receipt.json").write_text(json.dumps(receipt, separators=(",", ":")) + "\n")
    for more in (("--segments", "0"), ("--all",)):
        code, said, verdict = verify(*more)
        assert code == 1 and f"segment {len(chain)} of {len(chain)}, from step" in said, said
    end["state"] = "0" * 64
    end["link"] = hashlib.sha256(bytes.fromhex(chain[-1]["link"]) + struct.pack("<Q", steps) + bytes(32)).hexdigest()
    (run / "receipt.json").write_text(json.dumps(receipt, separators=(",", ":")) + "\n")
    code, said, verdict = verify("--segments", "0")
    assert code == 1 and verdict["place"] == "receipt.json: end.state", said


def main():
    with tempfile.TemporaryDirectory() as folder:
        config, run = pathlib.Path(folder) / "c.json", pathlib.Path(folder) / "run"
        config.write_text(json.dumps(CONFIG | {"run_dir": str(run)}))
        done = subprocess.run([sys.argv[1], str(config), "--devices", "cpu:2"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        said = done.stdout + done.stderr
        assert "receipt: 2 checkpoints of" in said and f"trainer verify {run}\n" in said, said
        check(run)
        verify(sys.argv[1], run)
        check_what_came_later(sys.argv[1], pathlib.Path(folder))
        check_within_epochs(sys.argv[1], pathlib.Path(folder))
        check_end_at_entry(sys.argv[1], pathlib.Path(folder))
        done = subprocess.run([sys.argv[1], str(config), "--devices", "cpu:2", "--set", "shards=\"devices\"",
                               "--set", "run_dir=" + json.dumps(str(run) + "-2"), "--set", "epochs=1"],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "this run cannot be verified: with shards" in done.stdout + done.stderr, done.stderr
        assert not pathlib.Path(str(run) + "-2/receipt.json").exists()


if __name__ == "__main__":
    main()
