# SPDX-License-Identifier: MIT
"""A run as a forger sees it: its files taken apart, changed, and put together again so that they agree.

Written from docs/verify.md alone, which describes state hash, chain and receipt, and from the descriptions of
checkpoints (src/checkpoint/checkpoint.h) and records (src/train/README.md).
"""
import copy
import hashlib
import json
import os
import shutil
import struct
import subprocess
import zlib

PRIME = 4294967291  # of the sums of lines in a checkpoint (src/hash/hash.h)
GROUPS = ("data", "augment")  # objects of a recipe whose members are keys of their own
BEGINS = ("init", "data.x", "data.y", "data.test_x", "data.test_y")  # keys that the state hash leaves out
DEFAULTS = {"data.drop": [], "schedule": {"warmup_epochs": 0}}  # of keys to which a forger goes back


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Tensors:
    """A safetensors file: its metadata, and its tensors as [name, shape, bytes]."""

    def __init__(self, path):
        self.path = path
        data = path.read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + length])
        self.meta = header.pop("__metadata__", {})
        body = data[8 + length:]
        self.list = [[name, t["shape"], body[t["data_offsets"][0]:t["data_offsets"][1]]] for name, t in header.items()]

    def encoded(self):
        meta = dict(self.meta)
        if "sha256" in meta:
            meta["sha256"] = "0" * 64
        header, at = {"__metadata__": meta}, 0
        for name, shape, data in self.list:
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(data)]}
            at += len(data)
        text = compact(header).encode()
        text += b" " * (-len(text) % 8)
        whole = struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in self.list)
        if "sha256" in meta:
            whole = whole.replace(b'"sha256":"' + b"0" * 64, b'"sha256":"' + sha256(whole).encode(), 1)
        return whole

    def save(self, path=None):
        (path or self.path).write_bytes(self.encoded())

    def weights(self):
        return [t for t in self.list if "/" not in t[0]]

    def find(self, part):
        return next(t for t in self.list if part in t[0])

    def change(self, part, change, index=0):
        """Changes one number of the first tensor whose name has `part`."""
        tensor = self.find(part)
        numbers = list(struct.unpack(f"<{len(tensor[2]) // 4}f", tensor[2]))
        numbers[index] = change(numbers[index])
        tensor[2] = struct.pack(f"<{len(numbers)}f", *numbers)

    def next_float(self, part, index=0):
        """Replaces one number by its neighbour (1 ulp)."""
        tensor = self.find(part)
        bits = list(struct.unpack(f"<{len(tensor[2]) // 4}I", tensor[2]))
        bits[index] ^= 1
        tensor[2] = struct.pack(f"<{len(bits)}I", *bits)

    @property
    def state(self):
        return json.loads(self.meta["lockstep"])

    @state.setter
    def state(self, value):
        self.meta["lockstep"] = compact(value)


def positions(steps, batch):
    """The chain's positions up to `steps` steps."""
    apart = max(100, -(-25600 // batch))
    at, found = 0, []
    while True:
        distance = apart
        while at // distance >= 32:
            distance *= 2
        at = (at // distance + 1) * distance
        if at > steps:
            return found
        found.append(at)


def state_hash(keys, steps, tensors):
    """The state hash of docs/verify.md. `keys`: "hashed" of the receipt."""
    hashed = hashlib.sha256(b"lockstep state 2\n")
    hashed.update(compact({"steps": steps, "recipe": keys}).encode() + b"\n")
    for name, _, data in tensors.list:
        hashed.update(f"{name} {len(data) // 4}\n".encode() + data)
    return hashed.hexdigest()


def flat(recipe):
    """Yields the keys of a recipe, with dotted names, and their values."""
    for name, value in recipe.items():
        if name in GROUPS:
            yield from ((f"{name}.{inner}", v) for inner, v in value.items())
        else:
            yield name, value


def hashed_keys(honest, recipe):
    """"hashed" of a receipt with another recipe than that of an honest receipt: the keys without defaults."""
    before, hashed = dict(flat(honest["recipe"])), dict(honest["hashed"])
    for key, value in flat(recipe):
        former = before.get(key)
        if value == former or key in BEGINS:
            continue
        if key == "optimizer":
            value = {k: v for k, v in value.items() if k in hashed[key] or v != former.get(k)}
        elif isinstance(DEFAULTS.get(key), dict):
            value = {k: v for k, v in value.items() if DEFAULTS[key].get(k) != v}
        hashed.pop(key, None)
        if key not in DEFAULTS or value != DEFAULTS[key]:
            hashed[key] = value
    return dict(sorted(hashed.items(), key=lambda pair: pair[0].encode()))


def follow(link, steps, state):
    return hashlib.sha256(link + struct.pack("<Q", steps) + bytes.fromhex(state)).digest()


def link_chain(receipt):
    """Computes all links of a receipt anew."""
    link = hashlib.sha256(b"lockstep chain 1\n" + bytes.fromhex(receipt["first_weights"])).digest()
    for entry in receipt["chain"] + [receipt["end"]]:
        link = follow(link, entry["steps"], entry["state"])
        entry["link"] = link.hex()


def mark_of(lines):
    """What a checkpoint stores of the records so far."""
    total = moment = 0
    for number, line in enumerate(lines, 1):
        crc = zlib.crc32(line) % PRIME
        total = (total + crc) % PRIME
        moment = (moment + number * crc) % PRIME
    return {"bytes": sum(len(line) + 1 for line in lines), "lines": len(lines), "sum": total, "moment": moment}


class Run:
    """The directory of a run."""

    def __init__(self, directory, trainer):
        self.dir, self.trainer = directory, trainer

    def path(self, name):
        return self.dir / name

    def copy_to(self, directory):
        shutil.copytree(self.dir, directory, symlinks=True)
        return Run(directory, self.trainer)

    # ---- receipt and config

    def receipt(self):
        return json.loads(self.path("receipt.json").read_text(encoding="utf-8"))

    def put_receipt(self, receipt):
        self.path("receipt.json").write_text(compact(receipt) + "\n", encoding="utf-8")

    def edit_receipt(self, edit):
        receipt = self.receipt()
        edit(receipt)
        self.put_receipt(receipt)

    def edit_config(self, edit):
        config = json.loads(self.path("config.json").read_text(encoding="utf-8"))
        edit(config)
        self.path("config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")

    # ---- records

    def lines(self):
        return self.path("metrics.jsonl").read_bytes().splitlines()

    def put_lines(self, lines):
        self.path("metrics.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))

    def line_of(self, kind, number=0):
        """Index of a record of this type."""
        found = [i for i, line in enumerate(self.lines()) if line.startswith(b'{"type":"%s"' % kind.encode())]
        return found[number]

    def edit_record(self, index, edit):
        lines = self.lines()
        record = json.loads(lines[index])
        edit(record)
        lines[index] = compact(record).encode()
        self.put_lines(lines)

    # ---- checkpoints

    def checkpoint_path(self, steps):
        return self.dir / "checkpoints" / f"step-{steps:09d}.safetensors"

    def checkpoint(self, steps):
        return Tensors(self.checkpoint_path(steps))

    def kept(self):
        return sorted(int(p.name[5:14]) for p in (self.dir / "checkpoints").glob("step-*.safetensors"))

    def forget_after(self, steps):
        for at in self.kept():
            if at > steps:
                self.checkpoint_path(at).unlink()

    def relabel(self, checkpoint, honest):
        """Gives a checkpoint the recipe of a receipt, and hashes of the states up to it that fit its tensors."""
        state = checkpoint.state
        steps = state["position"]["steps"]
        batch = honest["recipe"]["batch_size"]
        state["recipe"] = honest["recipe"]
        due = positions(steps, batch)
        chain = state["chain"][:1 + len(due)]
        if due and due[-1] == steps:
            chain = chain[:len(due)] + [state_hash(honest["hashed"], steps, checkpoint)]
        state["chain"] = chain
        checkpoint.state = state

    def resume(self, *more):
        """Trains on from the newest checkpoint, with the config that is in the directory."""
        for name in ("receipt.json", "weights.safetensors"):
            if self.path(name).exists():
                self.path(name).unlink()
        self.call("--resume", self.dir, "--devices", "cpu:1", "--quiet", *more)

    def call(self, *arguments):
        """Runs the program for the forger."""
        done = subprocess.run([self.trainer, *map(str, arguments)], capture_output=True, text=True, timeout=300,
                              check=False)
        if done.returncode != 0:
            raise RuntimeError(f"the forger's call failed: {done.stderr}")

    def go_on_from(self, steps, edit):
        """Changes a checkpoint, makes hashes and checksums agree with it, and trains on honestly."""
        checkpoint, honest = self.checkpoint(steps), self.receipt()
        edit(checkpoint)
        self.relabel(checkpoint, honest)
        checkpoint.save()
        self.forget_after(steps)
        self.resume()

    def train_otherwise(self, start, end, edit):
        """Trains from one position to another with another config, and hides that: recipe, hashes and config
        are put back before the run goes on."""
        config, honest = self.path("config.json").read_bytes(), self.receipt()
        if start > 0:
            other = copy.deepcopy(honest["recipe"])
            edit(other)
            checkpoint = self.checkpoint(start)
            state = checkpoint.state
            state["recipe"] = other
            checkpoint.state = state
            first = self.checkpoint_path(start).read_bytes()
            checkpoint.save()
        self.forget_after(start)
        self.edit_config(edit)
        self.resume()
        if start > 0:
            self.checkpoint_path(start).write_bytes(first)
        self.path("config.json").write_bytes(config)
        self.forget_after(end)
        forged = self.checkpoint(end)
        self.relabel(forged, honest)
        forged.save()
        self.resume()
        self.rehash(honest)

    def rehash(self, honest=None):
        """Composes receipt and hashes anew from the tensors that are in the directory. `honest`: a receipt whose
        recipe the new one has; None: the present recipe."""
        receipt = self.receipt()
        receipt.update({key: (honest or receipt)[key] for key in ("recipe", "hashed")})
        known = {entry["steps"]: entry for entry in receipt["chain"] + [receipt["end"]]}
        states = []
        for at in self.kept():
            checkpoint = self.checkpoint(at)
            state = checkpoint.state
            hashed = state_hash(receipt["hashed"], at, checkpoint)
            if at in known:
                known[at]["state"] = hashed
            if at in positions(at, receipt["recipe"]["batch_size"]):
                states.append(hashed)
            if "chain" in state:
                state["chain"] = [receipt["first_weights"]] + states
            state["recipe"] = receipt["recipe"]
            checkpoint.state = state
            checkpoint.save()
        weights = self.path("weights.safetensors")
        receipt["weights_file_sha256"] = sha256(weights.read_bytes())
        receipt["weights_sha256"] = sha256(b"".join(t[2] for t in Tensors(weights).list))
        link_chain(receipt)
        self.put_receipt(receipt)


def link_to(path, target):
    """Puts a symbolic link in a file's place."""
    path.unlink()
    os.symlink(target, path)
