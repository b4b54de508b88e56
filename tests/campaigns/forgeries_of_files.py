# SPDX-License-Identifier: MIT
"""Forgeries of files: each member of the receipt, JSON that two readers read differently, configs, checkpoints, and
what is no file. See forge.py."""
import json
import os
import re
import shutil
import struct

import forged_data
import forgery as F
from forged_run import compact, link_chain, link_to
from forgery import NOTICED, found, member, nothing, refused, segment

ALL = F.Forgeries()
FORGERIES = ALL.list

# ---- members of the receipt ----------------------------------------------------------------------

CONFIG = r"config\.json"  # it has another recipe than the receipt then


def leaves(value, path=()):
    """Paths of all values of a receipt that are not objects or arrays."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from leaves(inner, (*path, index))
    else:
        yield path, value


def other(value):
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value):
        return ("0" if value[0] != "0" else "1") + value[1:]
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, float):
        return struct.unpack("<d", struct.pack("<q", struct.unpack("<q", struct.pack("<d", value))[0] + 1))[0]
    return value + 1 if isinstance(value, int) else ["other"]


def put_at(document, path, value):
    for key in path[:-1]:
        document = document[key]
    document[path[-1]] = value


# Members of the receipt of "csv" of which each is changed alone. The others of `recipe` are of the same kind.
MEMBERS = [("format",), ("program",), ("library",), ("epochs",), ("data", "training", "file_sha256"),
           ("data", "training", "rows"), ("data", "training", "rows_sha256"), ("data", "test", "file_sha256"),
           ("data", "test", "rows"), ("data", "test", "rows_sha256"), ("first_weights",), ("end", "steps"), ("end", "state"),
           ("end", "link"), ("evaluation", "test_loss"), ("evaluation", "test_accuracy"), ("evaluation", "metric"),
           ("evaluation", "value"), ("evaluation", "metrics", "loss"), ("evaluation", "metrics", "accuracy"),
           ("evaluation", "metrics", "auc"), ("evaluation", "metrics", "average_precision"), ("evaluation", "metrics", "f1"),
           ("weights_sha256",), ("weights_file_sha256",), ("evaluations", "data", "unknown"), ("evaluations", "epochs"),
           ("evaluations", "eval_every"), ("evaluations", "monitor"), ("evaluations", "patience")]
MEMBERS += [("hashed", "seed"), ("hashed", "shards"), ("hashed", "data.target"), ("hashed", "optimizer", "lr")]
MEMBERS += [("chain", i, key) for i in range(3) for key in ("steps", "state", "link")]
MEMBERS += [("recipe", key) for key in ("batch_size", "seed", "freeze_epochs", "ema", "lr_scaling", "loss", "huber_delta",
                                        "label_smoothing", "gradient_scale", "precision", "allreduce", "on_nonfinite",
                                        "shards")]
MEMBERS += [("recipe", "optimizer", key) for key in ("lr", "clip_norm", "momentum", "weight_decay", "nesterov")]
MEMBERS += [("recipe", "data", key) for key in ("limit", "target", "standardize", "clip", "validation", "scale_rows")]
MEMBERS += [("recipe", "augment", key) for key in ("crop", "flip", "mixup")]


def expectation(path):
    """What the page says about a member that was changed alone."""
    if path[0] == "program":
        return nothing(F.PROGRAM)
    if path[0] == "format":
        return NOTICED
    if path[0] == "library":
        return refused(r"portable kernels 5x")
    if path[0] == "recipe":  # the config has another recipe; or the value is none that a recipe can have
        return NOTICED
    if path[0] == "evaluations":
        return NOTICED
    if path[0] in ("chain", "end", "first_weights"):
        return found("chain", "end", "first_weights")
    return found(re.escape("receipt.json: " + ".".join(map(str, path))), "weights.safetensors")


for path in MEMBERS:
    name = ".".join(map(str, path))
    ALL.add(f"receipt: {name}", lambda world, run, path=path: run.edit_receipt(
        lambda r: put_at(r, path, other(value_at(r, path)))), f"changes {name} in receipt.json", expectation(path),
        long=path[0] in ("recipe", "chain", "evaluations") or path[0] == "evaluation" and len(path) > 2)
    if path[0] not in ("recipe", "format", "program", "library", "evaluations"):
        ALL.add(f"receipt alone: {name}", lambda world, run, path=path: (run.edit_receipt(
            lambda r: put_at(r, path, other(value_at(r, path)))), [run.path("receipt.json")])[1],
            f"changes {name} in receipt.json", expectation(path), verifier=F.ALONE, long=True)


def value_at(document, path):
    for key in path:
        document = document[key]
    return document


def cosine(world, run, edit):
    """An honest run whose learning rates depend on its length, and a change of its receipt."""
    config, _ = forged_data.recipe("csv", world)
    config.update(schedule={"name": "cosine"}, epochs=60, eval_every=20)
    forged = world.train(config, run.dir.parent / "cosine")
    forged.edit_receipt(edit)
    return [forged.dir, "--all"]


for name, edit in (("no recipe.epochs", lambda r: r["recipe"].pop("epochs")),
                   ("another recipe.epochs", lambda r: r["recipe"].update(epochs=61)),
                   ("no evaluations.epochs", lambda r: r["evaluations"].pop("epochs")),
                   ("another evaluations.epochs", lambda r: r["evaluations"].update(epochs=61))):
    ALL.add(f"receipt of a cosine: {name}", lambda world, run, edit=edit: cosine(world, run, edit),
            f"writes a receipt with {name}", found(r"receipt\.json: (recipe|evaluations)\.epochs"),
            long="no" not in name.split())


for missing in ("seed", "shards", "optimizer"):
    def _(_world, run, missing=missing):
        run.edit_receipt(lambda r: r["hashed"].pop(missing))
        run.rehash()
    ALL.add(f"hashed: no {missing}, chain rebuilt", _, f"leaves {missing} out of the hashed keys, and rebuilds all hashes",
            found("hashed", "end", "chain", "step-0", "segment 1"), long=missing != "seed")


for index in range(3):
    def _(_world, run, index=index):
        def edit(receipt):
            receipt["chain"][index]["state"] = other(receipt["chain"][index]["state"])
            link_chain(receipt)
        run.edit_receipt(edit)
    ALL.add(f"chain: state {index}, links rebuilt", _, "changes a state hash and rebuilds all links",
            found(rf"step-{(index + 1) * 100:09d}", rf"segment {index + 1} of 4"), long=index != 1)
    ALL.add(f"chain: state {index}, links rebuilt, receipt alone", lambda world, run, _=_: (_(world, run),
                                                                                       [run.path("receipt.json")])[1],
            "changes a state hash and rebuilds all links", segment(index + 1, 4), verifier=F.ALONE, long=index != 1)


def rechain(edit):
    def make(_world, run):
        def change(receipt):
            edit(receipt)
            link_chain(receipt)
        run.edit_receipt(change)
    return make


def swap_entries(receipt):
    first, second = receipt["chain"][:2]
    first["state"], second["state"] = second["state"], first["state"]


for name, edit in (("an entry is missing", lambda r: r["chain"].pop(1)), ("no entry at all", lambda r: r["chain"].clear()),
                   ("two states swapped", swap_entries),
                   ("an additional entry at 150", lambda r: r["chain"].insert(1, {**r["chain"][0], "steps": 150})),
                   ("an additional entry at 350", lambda r: r["chain"].append({**r["end"]})),
                   ("the last entry is missing", lambda r: r["chain"].pop()),
                   ("an entry at 101", lambda r: r["chain"][0].update(steps=101)),
                   ("the end at 300", lambda r: (r["chain"].pop(), r["end"].update(steps=300))),
                   ("an unknown key in an entry", lambda r: r["chain"][0].update(note="x")),
                   ("5,000 entries", lambda r: r.update(chain=[{**r["chain"][0], "steps": 100 * (i + 1)}
                                                              for i in range(5000)])),
                   ("a position of 2^60", lambda r: r["end"].update(steps=2 ** 60)),
                   ("a million million steps", lambda r: r["end"].update(steps=10 ** 12)),
                   ("end before the chain's last", lambda r: r["end"].update(steps=250))):
    def _(world, run, edit=edit):
        rechain(edit)(world, run)
    noticed = name.startswith(("5,000", "a position", "a million", "an unknown"))
    ALL.add(f"chain: {name}", _, f"chain with all links rebuilt: {name}",
            NOTICED if noticed else found("chain", "end", "step-0", "segment"), long=name.startswith("an additional"))


# ---- JSON that two readers read differently, and what is no JSON ---------------------------------

def text_of(change):
    """Changes the text of the receipt."""
    def make(_world, run):
        path = run.path("receipt.json")
        before = path.read_bytes()
        after = change(before)
        assert after != before
        path.write_bytes(after)
    return make


def twice(text):
    return text.replace(b'"end":', b'"weights_sha256":"' + b"ab" * 32 + b'","end":', 1)


TEXTS = [("a key twice, the forged one first", twice),
         ("a key twice, the forged one last", lambda t: t.replace(b"}\n", b',"weights_sha256":"' + b"ab" * 32 + b'"}\n')),
         ("a key twice, once with an escape", lambda t: t.replace(b"}\n", b',"weights_sha25\\u0036":"' + b"ab" * 32 + b'"}\n')),
         ("a key of the recipe twice", lambda t: t.replace(b'"seed":3', b'"seed":4,"seed":3', 1)),
         ("a key in capitals", lambda t: t.replace(b'"seed":3', b'"Seed":4,"seed":3', 1)),
         ("a key of the recipe in capitals alone", lambda t: t.replace(b'"seed":3', b'"SEED":3', 1)),
         ("a key with a Cyrillic letter", lambda t: t.replace(b'"end":', '"еnd":'.encode(), 1)),
         ("an unknown key", lambda t: t.replace(b'"end":', b'"certified":true,"end":', 1)),
         ("an unknown key of the recipe", lambda t: t.replace(b'"seed":3', b'"energy":0,"seed":3', 1)),
         ("a zero byte in a text", lambda t: t.replace(b'"seed":3', b'"s\\u0000eed":4,"seed":3', 1)),
         ("a zero byte at the end", lambda t: t + b"\0{}"),
         ("a second document", lambda t: t + t),
         ("a comment", lambda t: b"/* honest */" + t),
         ("a number of 400 digits", lambda t: t.replace(b'"epochs":175,"data"', b'"epochs":1' + b"0" * 400 + b',"data"', 1)),
         ("1e999", lambda t: t.replace(b'"epochs":175,"data"', b'"epochs":1e999,"data"', 1)),
         ("a NaN", lambda t: t.replace(b'"test_loss":', b'"test_loss":NaN,"was":', 1)),
         ("175.5 epochs", lambda t: t.replace(b'"epochs":175,"data"', b'"epochs":175.5,"data"', 1)),
         ("a negative number", lambda t: t.replace(b'"epochs":175,"data"', b'"epochs":-175,"data"', 1)),
         ("a number as text", lambda t: t.replace(b'"epochs":175,"data"', b'"epochs":"175","data"', 1)),
         ("a hash in capitals", lambda t: re.sub(rb'("weights_sha256":")([0-9a-f]+)', lambda m: m[1] + m[2].upper(), t)),
         ("a hash with 63 digits", lambda t: re.sub(rb'("weights_sha256":")[0-9a-f]', rb"\1", t)),
         ("a hash with a blank", lambda t: re.sub(rb'("weights_sha256":")([0-9a-f]{63}).', rb"\1\2 ", t)),
         ("a hash that is null", lambda t: re.sub(rb'"weights_sha256":"[0-9a-f]+"', b'"weights_sha256":null', t)),
         ("a member is missing", lambda t: re.sub(rb',"weights_file_sha256":"[0-9a-f]+"', b"", t)),
         ("no evaluation", lambda t: re.sub(rb'"evaluation":\{.*?\}\},', b"", t)),
         ("no data", lambda t: re.sub(rb'"data":\{"training.*?\}\},', b"", t)),
         ("no recipe", lambda t: re.sub(rb'"recipe":\{.*?"shards":2\},', b"", t)),
         ("a million brackets", lambda t: t.replace(b'"end":', b'"deep":' + b"[" * 1000000 + b"]" * 1000000 + b',"end":', 1)),
         ("a text of 50 MB", lambda t: t.replace(b'"end":', b'"note":"' + b"x" * 50000000 + b'","end":', 1)),
         ("invalid UTF-8", lambda t: t.replace(b'"0.3.0"', b'"0.3.\xff"', 1)),
         ("empty", lambda t: b""), ("only a brace", lambda t: b"{"), ("an array", lambda t: b"[" + t.strip() + b"]\n"),
         ("a half", lambda t: t[:len(t) // 2])]

for name, change in TEXTS:
    ALL.add(f"text of the receipt: {name}", text_of(change), f"writes a receipt with {name}", NOTICED,
            long=name not in ("a key twice, the forged one first", "a key twice, the forged one last", "an unknown key",
                              "a member is missing", "a half", "a million brackets"))


@ALL.of("text of the receipt: blanks and another order", "formats the receipt anew, with the same values",
        found("receipt.json is not in the form"))
def _(_world, run):
    receipt = run.receipt()
    text = json.dumps(dict(reversed(list(receipt.items()))), indent=3)
    run.path("receipt.json").write_text("\n" + text + "\n\n", encoding="utf-8")


# ---- what is no file -----------------------------------------------------------------------------

def instead(name, make):
    def change(_world, run):
        path = run.path(name)
        path.unlink()
        make(path)
    return change


FILES = ("receipt.json", "metrics.jsonl", "weights.safetensors", "config.json",
         "checkpoints/step-000000200.safetensors")
THINGS = (("a pipe", os.mkfifo), ("a link to /dev/zero", lambda p: os.symlink("/dev/zero", p)),
          ("a directory", os.mkdir), ("a link to itself", lambda p: os.symlink(p, p)),
          ("a file of 1 TB with holes", lambda p: os.truncate(os.open(p, os.O_CREAT | os.O_WRONLY), 1 << 40)))
for file in FILES:
    for name, make in THINGS:
        absent = file.startswith("checkpoints") and name == "a link to itself"
        ALL.add(f"no file: {file} is {name}", instead(file, make), f"puts {name} in the place of {file}",
                nothing(F.ABSENT) if absent else NOTICED,
                long=name not in ("a pipe", "a link to /dev/zero"))

for file, said in (("metrics.jsonl", "no records to compare"), ("weights.safetensors", "no weights to compare"),
                   ("checkpoints/step-000000200.safetensors", "verified"),
                   ("receipt.json", "there was no receipt")):
    ALL.add(f"no file: {file} is missing", lambda world, run, file=file: run.path(file).unlink(), f"removes {file}",
            ("nothing", F.ABSENT if said.startswith("no ") else F.NO_RECEIPT, said))


@ALL.of("link: the weights are a link to the same bytes", "puts a link in the place of the weights",
        nothing("`weights.safetensors` and the checkpoints at the positions of the chain"))
def _(_world, run):
    run.path("weights.safetensors").rename(run.path("w"))
    link_to_missing(run.path("weights.safetensors"), run.path("w"))


def link_to_missing(path, target):
    os.symlink(target, path)


@ALL.of("link: a checkpoint is a link to a later one", "links the checkpoint of step 200 to that of step 300",
        found("step-000000200"))
def _(_world, run):
    link_to(run.checkpoint_path(200), run.checkpoint_path(300))


# ---- checkpoints ---------------------------------------------------------------------------------

for name, edit in (("losses and times", lambda s: s["position"].update(loss=0.0, trained_s=1e-3, least_loss=0.0)),
                   ("the best evaluation", lambda s: s["position"]["best"].update(value=1.0, epoch=1)),
                   ("the last evaluation", lambda s: s.update(test_loss=0.0, test_accuracy=1.0)),
                   ("the device", lambda s: s.update(instruction_set="sm_90")),
                   ("the checksum of the data", lambda s: s.update(data_crc32=1)),
                   ("the records' sums", lambda s: s["metrics"].update(sum=1)),
                   ("its hashes of states", lambda s: s["chain"].__setitem__(1, "ab" * 32))):
    def _(_world, run, edit=edit):
        checkpoint = run.checkpoint(200)
        state = checkpoint.state
        edit(state)
        checkpoint.state = state
        checkpoint.save()
    ALL.add(f"checkpoint: {name}", _, f"changes {name} in the text of a kept checkpoint", nothing(F.BESIDES),
            long=name != "the best evaluation")

    def _(world, run, _=_):
        _(world, run)
        return [run.dir, "--segments", "2"]
    ALL.add(f"checkpoint: {name}, drawn", _, f"changes {name} in the text of a kept checkpoint", nothing(F.BESIDES),
            verifier="has the run's directory and own data; --segments 2", long=name != "the device")

for name, edit, expect in (
        ("an additional tensor", lambda c: c.list.append(["fc9.weight", [1], struct.pack("<f", 1)]), NOTICED),
        ("a tensor less", lambda c: c.list.pop(), NOTICED),
        ("a tensor in another shape", lambda c: c.list[0].__setitem__(1, [len(c.list[0][2]) // 4]), NOTICED),
        ("two tensors with swapped names", lambda c: swap_names(c), found("step-000000200", "segment 2 of 4"))):
    def _(_world, run, edit=edit):
        checkpoint = run.checkpoint(200)
        edit(checkpoint)
        checkpoint.save()
    ALL.add(f"checkpoint: {name}", _, f"checkpoint with {name}", expect, long=True)


def swap_names(checkpoint):
    first, second = checkpoint.find("fc1.weight"), checkpoint.find("momentum_buffer/fc1.weight")
    first[2], second[2] = second[2], first[2]


@ALL.of("checkpoint: a flipped bit", "changes a byte of a kept checkpoint", found("step-000000200"))
def _(_world, run):
    path = run.checkpoint_path(200)
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


@ALL.of("checkpoint: that of another position", "copies the checkpoint of step 100 to that of step 200",
        found("step-000000200"))
def _(_world, run):
    shutil.copy(run.checkpoint_path(100), run.checkpoint_path(200))


@ALL.of("checkpoint: all are missing", "gives a directory without checkpoints", nothing(F.ABSENT))
def _(_world, run):
    shutil.rmtree(run.path("checkpoints"))


@ALL.of("checkpoint: a rate that is not in the config", "writes a rate that a program would have set", nothing(F.BESIDES),
        verifier="has the run's directory and own data; --segments 2")
def _(_world, run):
    checkpoint = run.checkpoint(200)
    state = checkpoint.state
    state["position"]["lr"] = 0.5
    checkpoint.state = state
    checkpoint.save()
    return [run.dir, "--segments", "2"]


# ---- the config ----------------------------------------------------------------------------------

def config(edit, *arguments):
    def make(world, run):
        run.edit_config(lambda c: edit(c, run))
        return [run.dir, *arguments] if arguments else None
    return make


for name, edit, expect in (
        ("devices that are not there", lambda c, r: c.update(devices="cuda:0"), nothing(F.DEVICES)),
        ("100 workers", lambda c, r: c.update(devices="cpu:100", threads=100), nothing(F.DEVICES)),
        ("another place of the data", lambda c, r: c["data"].update(path="/nowhere"), nothing(F.PLACES)),
        ("a run_dir elsewhere", lambda c, r: c.update(run_dir=str(r.dir.parent / "trap")), nothing(F.PLACES)),
        ("TensorBoard's files", lambda c, r: c["metrics"].update(tensorboard=True), nothing(F.PLACES)),
        ("checkpoints at each step", lambda c, r: c["checkpoint"].update(every_steps=1), nothing(F.PLACES)),
        ("a transport", lambda c, r: c["cluster"].update(transport="mpi"), nothing(F.PLACES)),
        ("capacities", lambda c, r: c.update(capacity=[1, 2, 3]), nothing(F.PLACES)),
        ("another name", lambda c, r: c.update(name="best ever"), nothing(F.PLACES)),
        ("receipt is false", lambda c, r: c.update(receipt=False), nothing(F.PLACES)),
        ("a tiny deadline", lambda c, r: c.update(deadline_s=1e-9), nothing(F.PLACES)),
        ("another seed", lambda c, r: c.update(seed=4), found(CONFIG)),
        ("another rate", lambda c, r: c["optimizer"].update(lr=0.06), found(CONFIG)),
        ("other columns left out", lambda c, r: c["data"].update(drop=["c"]), found(CONFIG)),
        ("other epochs", lambda c, r: c.update(epochs=10), nothing(F.OUTSIDE)),
        ("another eval_every", lambda c, r: c.update(eval_every=1), nothing(F.OUTSIDE)),
        ("patience", lambda c, r: c.update(patience=3), nothing(F.OUTSIDE)),
        ("a sum by one device", lambda c, r: c.update(allreduce="naive"), NOTICED),
        ("shards of devices", lambda c, r: c.update(shards="devices"), NOTICED),
        ("an unknown key", lambda c, r: c.update(certified=True), NOTICED),
        ("data of another kind", lambda c, r: c["data"].update(name="synthetic"), NOTICED)):
    ALL.add(f"config: {name}", config(edit), f"config.json: {name}", expect,
            long=name in ("capacities", "another name", "other columns left out", "data of another kind"))


@ALL.of("config: a run_dir elsewhere is not written to", "config.json names a directory; nothing may appear there",
        nothing(F.PLACES))
def _(world, run):
    trap = world.directory / "trap"
    run.edit_config(lambda c: c.update(run_dir=str(trap)))
    world.verify([run.dir, "--all", *world.own_data("csv")])
    assert not trap.exists(), "verify wrote to the prover's run_dir"


@ALL.of("config: packed pictures of the prover's", "config.json names a packed file that is another one",
        nothing("whatever packed file the prover's config names"), of="folder")
def _(_world, run):
    forged = run.path("forged.safetensors")
    forged.write_bytes(b"not a packed file")
    run.edit_config(lambda c: c["data"].update(packed=str(forged)))


@ALL.of("config: written twice", "config.json has the key seed twice", NOTICED)
def _(_world, run):
    text = run.path("config.json").read_text(encoding="utf-8")
    run.path("config.json").write_text(text.replace('"seed": 3', '"seed": 4,\n  "seed": 3'), encoding="utf-8")


# ---- what the verifier's program writes ----------------------------------------------------------

@ALL.of("result: verified.json of another run", "writes a verified.json that says that it holds", segment(2, 4))
def _(_world, run):
    run.go_on_from(200, lambda c: c.next_float("fc1.weight"))
    run.path("verified.json").write_text(compact({"lockstep": "0.3.0", "holds": True, "all": True}), encoding="utf-8")


@ALL.of("result: verified.json is a link", "links verified.json to a file of the verifier, which must stay", segment(2, 4))
def _(world, run):
    run.go_on_from(200, lambda c: c.next_float("fc1.weight"))
    precious = run.dir.parent / "precious"
    precious.write_text("mine", encoding="utf-8")
    os.symlink(precious, run.path("verified.json"))
    world.verify_in_place([run.dir, "--all", *world.own_data("csv")])
    assert precious.read_text(encoding="utf-8") == "mine", "verify wrote through the prover's link"
