# SPDX-License-Identifier: MIT
"""Forgeries of what was trained: weights, states, steps, recipe, rows. See forge.py."""
import re
import shutil
import struct

import forgery as F
from forged_run import Tensors, hashed_keys, mark_of, positions
from forgery import found, member, nothing, rate, segment

ALL = F.Forgeries()
FORGERIES = ALL.list


# ---- the weights ---------------------------------------------------------------------------------

def another(world, **changes):
    """A run of the recipe "csv" with other values of some keys, trained when it is first needed."""
    name = "csv-" + "-".join(f"{k}={v}" for k, v in changes.items())
    name = re.sub(r"[^\w=-]", "_", name)
    if name not in world.runs:
        options = [part for key, value in changes.items() for part in ("--set", f"{key}={value}")]
        world.runs[name] = world.train(world_config(world, "csv"), world.directory / f"other-{name}", *options)
    return world.runs[name]


def world_config(world, name):
    import forged_data
    return forged_data.recipe(name, world)[0]


@ALL.of("weights: of another seed", "puts another run's weights.safetensors in the place of the run's",
        found("weights"))
def _(world, run):
    shutil.copy(another(world, seed=4).path("weights.safetensors"), run.dir)


@ALL.of("weights: of another seed, receipt alone", "gives a receipt and another run's weights", found("weights"),
        verifier=F.ALONE)
def _(world, run):
    return [run.path("receipt.json"), "--weights", another(world, seed=4).path("weights.safetensors")]


@ALL.of("weights: of another seed, hashes renewed", "swaps weights, and renews both hashes of weights in the receipt",
        found("weights", "end"))
def _(world, run):
    other = another(world, seed=4)
    shutil.copy(other.path("weights.safetensors"), run.dir)
    theirs = other.receipt()
    run.edit_receipt(lambda r: r.update({key: theirs[key] for key in ("weights_sha256", "weights_file_sha256")}))


def put_weights(run, source):
    """Replaces the weights in the file of weights and in the last checkpoint."""
    weights = Tensors(run.path("weights.safetensors"))
    last = run.checkpoint(run.kept()[-1])
    for tensors in (weights, last):
        for tensor in tensors.list:
            tensor[2] = next((t[2] for t in source.list if t[0] == tensor[0]), tensor[2])
        tensors.save()
    run.rehash()


@ALL.of("weights: swapped, chain rebuilt", "swaps the final weights, also in the last checkpoint, and rebuilds the chain",
        segment(4, 4, "fc1.weight"))
def _(world, run):
    put_weights(run, Tensors(another(world, seed=4).path("weights.safetensors")))


@ALL.of("weights: swapped, chain rebuilt, receipt alone", "the same; gives the receipt and the weights alone",
        segment(4, 4), verifier=F.ALONE)
def _(world, run):
    put_weights(run, Tensors(another(world, seed=4).path("weights.safetensors")))
    return [run.path("receipt.json")]


@ALL.of("weights: swapped, run of one segment", "swaps the final weights and rebuilds the chain of a short run",
        segment(1, 1), of="short")
def _(_world, run):
    weights = Tensors(run.path("weights.safetensors"))
    weights.change("fc2.bias", lambda v: v + 1)
    put_weights(run, weights)


for part, change in (("fc1.weight", "ulp"), ("fc2.bias", "ulp"), ("fc1.bias", "nan"), ("fc2.weight", "infinite"),
                     ("fc2.bias", "sign")):
    def _(_world, run, part=part, change=change):
        weights = Tensors(run.path("weights.safetensors"))
        if change == "ulp":
            weights.next_float(part)
        else:
            value = {"nan": float("nan"), "infinite": float("inf")}.get(change)
            weights.change(part, lambda v: -v if value is None else value)
        put_weights(run, weights)
    ALL.add(f"weights: {part} {change}, chain rebuilt", _, f"changes one number of {part}: {change}",
            found("step-000000350") if change in ("nan", "infinite") else segment(4, 4, re.escape(part)),
            long=change != "ulp")


@ALL.of("weights: one ulp in the file", "changes the last bit of one weight in the file alone", found("weights"))
def _(_world, run):
    weights = Tensors(run.path("weights.safetensors"))
    weights.next_float("fc1.weight")
    weights.save()


def edit_file_of_weights(run, edit, renew):
    weights = Tensors(run.path("weights.safetensors"))
    edit(weights)
    weights.save()
    if renew:
        run.rehash()


def swap_classes(weights):
    weights.meta["lockstep_model"] = weights.meta["lockstep_model"].replace('"no","yes"', '"yes","no"')
    assert '"yes","no"' in weights.meta["lockstep_model"]


for name, edit in (("the classes' names swapped", swap_classes),
                   ("another number of steps", lambda w: w.meta.update(lockstep_steps="351")),
                   ("an additional tensor", lambda w: w.list.append(["fc9.weight", [1], struct.pack("<f", 1)])),
                   ("another column's mean", lambda w: w.meta.update(
                       lockstep_model=re.sub(r"(\"mean\":\[?)", r"\g<1>1", w.meta["lockstep_model"], count=1)))):
    for renewed in (False, True):
        ALL.add(f"description of the weights: {name}" + (", hash renewed" if renewed else ""),
                lambda world, run, edit=edit, renewed=renewed: edit_file_of_weights(run, edit, renewed),
                f"weights.safetensors: {name}" + ("; renews its hash in the receipt" if renewed else ""),
                found("weights"), long=renewed and name.startswith("another"))


def keep_threshold(run, more=lambda weights: None):
    """Adds a threshold to the description of the weights, as `eval --keep` does, and changes the file further."""
    run.call("eval", run.dir, "--threshold", "0.3", "--keep")
    weights = Tensors(run.path("weights.safetensors"))
    more(weights)
    weights.save()


def twice(weights):
    weights.meta["lockstep_model"] = weights.meta["lockstep_model"].replace("{", '{"threshold":0.2,', 1)


ALL.add("threshold: kept by eval", lambda world, run: keep_threshold(run), "chooses a threshold after the training",
        ("nothing", F.THRESHOLD, "threshold 0.3"))
ALL.add("threshold: kept by eval, drawn", lambda world, run: (keep_threshold(run), [run.dir, "--segments", "1"])[1],
        "chooses a threshold after the training", ("nothing", F.THRESHOLD, "not refuted.*threshold 0.3"),
        verifier="has the run's directory and own data; --segments 1")
ALL.add("threshold: kept by eval, no receipt",
        lambda world, run: (keep_threshold(run), run.path("receipt.json").unlink())[1],
        "chooses a threshold after the training, and gives no receipt",
        ("nothing", F.THRESHOLD, "no receipt; the threshold 0.3"))
for name, edit in (("one ulp of a weight", lambda w: w.next_float("fc1.weight")), ("the classes' names", swap_classes),
                   ("the number of steps", lambda w: w.meta.update(lockstep_steps="351")), ("another threshold", twice),
                   ("an additional tensor", lambda w: w.list.append(["fc9.weight", [1], struct.pack("<f", 1)])),
                   ("a note", lambda w: w.meta.update(note="trained on nothing else"))):
    for without in (False, True):
        ALL.add(f"threshold: and {name}" + (", no receipt" if without else ""),
                lambda world, run, edit=edit, without=without: (
                    keep_threshold(run, edit), run.path("receipt.json").unlink() if without else None)[1],
                f"keeps a threshold, and changes {name} beside it" + ("; gives no receipt" if without else ""),
                ("noticed", "") if name == "the number of steps" else found("weights"), long=without)


@ALL.of("weights: receipt of another run", "puts another run's receipt beside the weights", found("weights", "config"))
def _(world, run):
    shutil.copy(another(world, seed=4).path("receipt.json"), run.dir)


@ALL.of("weights: receipt of another run, alone", "gives another run's receipt and these weights", found("weights"),
        verifier=F.ALONE)
def _(world, run):
    return [another(world, seed=4).path("receipt.json"), "--weights", run.path("weights.safetensors")]


# ---- first weights -------------------------------------------------------------------------------

def begin_with(world, run, scale):
    """Trains from chosen first weights, and gives the result the recipe's `init`."""
    chosen = Tensors(run.path("weights.safetensors"))
    for name in ("fc1.weight", "fc2.weight"):
        chosen.change(name, lambda v: v * scale)
    path = world.directory / f"chosen-{run.dir.parent.name}.safetensors"
    chosen.save(path)
    config = world_config(world, "csv")
    config["init"] = {"weights": str(path)}
    return world.train(config, run.dir.parent / "chosen")


def call_it_kaiming(run, honest, first=None):
    """Hides that a run began with a file of weights."""
    config = honest.path("config.json").read_text(encoding="utf-8").replace(str(honest.dir), str(run.dir))
    run.path("config.json").write_text(config, encoding="utf-8")
    start = honest.lines()[0]
    run.put_lines([start] + run.lines()[1:])
    receipt = run.receipt()
    receipt.pop("init_file_sha256")
    receipt["recipe"] = honest.receipt()["recipe"]
    receipt["first_weights"] = first or receipt["first_weights"]
    run.put_receipt(receipt)
    run.rehash()


@ALL.of("first weights: chosen", "begins with chosen weights, and says that `init` is kaiming", member("first_weights"))
def _(world, run):
    forged = begin_with(world, run, 1.5)
    call_it_kaiming(forged, run)
    return [forged.dir, "--all"]


@ALL.of("first weights: chosen, hash of the honest ones", "the same, with the hash of the honest first weights",
        segment(1, 4))
def _(world, run):
    forged = begin_with(world, run, 1.5)
    call_it_kaiming(forged, run, run.receipt()["first_weights"])
    return [forged.dir, "--all"]


@ALL.of("first weights: chosen, hash of the honest ones, drawn", "the same; the verifier draws one segment",
        segment(1, 4), verifier="has the run's directory and own data; --segments 0")
def _(world, run):
    forged = begin_with(world, run, 1.5)
    call_it_kaiming(forged, run, run.receipt()["first_weights"])
    return [forged.dir, "--segments", "0"]


@ALL.of("first weights: another file than the receipt's", "gives the verifier another file init.weights",
        found("init_file_sha256", "first_weights"), of="init")
def _(world, run):
    chosen = Tensors(world.honest("csv").path("weights.safetensors"))
    chosen.next_float("fc1.weight")
    chosen.save(run.dir.parent / "init.safetensors")
    return [run.dir, "--all", "--set", f"init.weights={run.dir.parent / 'init.safetensors'}"]


@ALL.of("first weights: the file's hash alone", "changes init_file_sha256", member("init_file_sha256"), of="init")
def _(_world, run):
    run.edit_receipt(lambda r: r.update(init_file_sha256="ab" * 32))


@ALL.of("first weights: the file with another description", "gives a file with the same tensors and other metadata",
        member("init_file_sha256"), of="init")
def _(world, run):
    chosen = Tensors(world.honest("csv").path("weights.safetensors"))
    chosen.meta["note"] = "other bytes"
    chosen.save(run.dir.parent / "init.safetensors")
    return [run.dir, "--all", "--set", f"init.weights={run.dir.parent / 'init.safetensors'}"]


@ALL.of("first weights: poisoned, declared", "begins with weights that were trained on a trigger, and says so by its hash",
        nothing(F.FIRST_WEIGHTS), of="init")
def _(world, run):
    chosen = Tensors(world.honest("csv").path("weights.safetensors"))
    chosen.change("fc1.weight", lambda v: v + 3)
    chosen.save(run.dir.parent / "init.safetensors")
    config = world_config(world, "init")
    config["init"] = {"weights": str(run.dir.parent / "init.safetensors")}
    forged = world.train(config, run.dir.parent / "poisoned")
    return [forged.dir, "--all"]


# ---- states in checkpoints -----------------------------------------------------------------------

STATES = [("csv", 100, 1, 4, "fc1.weight"), ("csv", 200, 2, 4, "momentum_buffer/fc2.bias"),
          ("csv", 300, 3, 4, "momentum_buffer/fc1.weight"), ("npy", 200, 1, 3, "exp_avg/"),
          ("npy", 400, 2, 3, "exp_avg_sq/"), ("npy", 200, 1, 3, "running_mean"), ("npy", 400, 2, 3, "running_var"),
          ("npy", 400, 2, 3, "optimizer/weights/"), ("npy", 200, 1, 3, "fc2.bias"), ("weighted", 100, 1, 2, "exp_avg_sq/fc1.weight")]

for of, at, number, count, part in STATES:
    def _(_world, run, at=at, part=part):
        checkpoint = run.checkpoint(at)
        checkpoint.next_float(part)
        checkpoint.save()
    ALL.add(f"state of {of} at {at}: {part}", _, f"changes one number of {part} in a kept checkpoint by an ulp",
            found(rf"step-{at:09d}", rf"segment {number} of {count}\b.*{re.escape(part)}"), of=of, long=of == "npy")

    def _(_world, run, at=at, part=part):
        run.go_on_from(at, lambda c: c.next_float(part))
    ALL.add(f"state of {of} at {at}: {part}, trained on", _,
            f"changes one number of {part} by an ulp, rebuilds the chain, and trains on honestly",
            segment(number, count, re.escape(part)), of=of)


@ALL.of("state: any other weights at 200", "puts another run's checkpoint in the middle, and trains on honestly",
        segment(2, 4, "fc1.weight"))
def _(world, run):
    other = another(world, seed=4).checkpoint(200)

    def swap(checkpoint):
        checkpoint.list = other.list
    run.go_on_from(200, swap)


@ALL.of("state: any other weights at 200, receipt alone", "the same; gives the receipt and the weights alone",
        segment(2, 4), verifier=F.ALONE)
def _(_world, run):
    run.go_on_from(200, lambda c: c.change("fc2.bias", lambda v: v + 1))
    return [run.path("receipt.json")]


@ALL.of("state: the momentum of 100 at 200", "copies the optimizer's states of an earlier checkpoint",
        segment(2, 4, "momentum_buffer"))
def _(_world, run):
    earlier = run.checkpoint(100)

    def swap(checkpoint):
        for tensor in checkpoint.list:
            if "/" in tensor[0]:
                tensor[2] = next(t[2] for t in earlier.list if t[0] == tensor[0])
    run.go_on_from(200, swap)


@ALL.of("state: the momentum is zero at 200", "sets the optimizer's states to zero", segment(2, 4, "momentum_buffer"))
def _(_world, run):
    def swap(checkpoint):
        for tensor in checkpoint.list:
            if "/" in tensor[0]:
                tensor[2] = bytes(len(tensor[2]))
    run.go_on_from(200, swap)


# ---- steps ---------------------------------------------------------------------------------------

def place(checkpoint, steps, entries):
    """Says that the checkpoint of "csv" is that after another number of steps, with as many hashes of states."""
    state = checkpoint.state
    epoch, step = ((steps - 1) // 2, 2) if steps % 2 == 0 else (steps // 2, 1)
    state["position"].update(steps=steps, epoch=epoch, step=step)
    state["chain"] = state["chain"][:1 + entries]
    checkpoint.state = state


def every_step(world):
    """The run "csv" with a checkpoint after each step."""
    if "every" not in world.runs:
        config = world_config(world, "csv")
        config["checkpoint"] = {"every_steps": 1, "every_seconds": 0, "keep": 1000}
        world.runs["every"] = world.train(config, world.directory / "other-every")
    return world.runs["every"]


def step_is_moved(world, run, source, steps):
    """Calls the state after `source` steps that after `steps` steps, and trains on."""
    whole = every_step(world).copy_to(run.dir.parent / "steps")
    checkpoint = whole.checkpoint(source)
    place(checkpoint, steps, len([p for p in positions(steps, 256) if p < steps]))
    whole.forget_after(min(source, steps) - 1)
    checkpoint.save(whole.checkpoint_path(steps))
    whole.resume()
    return [whole.dir, "--all"]


for source, steps, number, what in ((150, 149, 2, "done twice"), (150, 151, 2, "left out"), (1, 2, 1, "left out"),
                                    (350 - 1, 350, 4, "left out"), (2, 1, 1, "done twice"), (310, 309, 4, "done twice"),
                                    (250, 253, 3, "left out, with two more"), (101, 102, 2, "left out")):
    ALL.add(f"step {max(source, steps)} {what}", lambda world, run, source=source, steps=steps:
            step_is_moved(world, run, source, steps),
            f"calls the state after {source} steps that after {steps}, and trains on",
            segment(number, 4), long=source in (2, 310, 250, 101))


# ---- another config in one segment ---------------------------------------------------------------

SEGMENTS = [("rate", lambda c: c["optimizer"].update(lr=0.0500001)), ("seed", lambda c: c.update(seed=4)),
            ("momentum", lambda c: c["optimizer"].update(momentum=0.91)),
            ("weight decay", lambda c: c["optimizer"].update(weight_decay=1e-6)),
            ("label smoothing", lambda c: c.update(label_smoothing=0.01)),
            ("nesterov", lambda c: c["optimizer"].update(nesterov=True))]

for name, edit in SEGMENTS:
    for start, end in ((0, 100), (100, 200), (200, 300), (300, 350)):
        def _(world, run, start=start, end=end, edit=edit):
            if start == 0:  # a checkpoint before the first step does not exist
                honest, receipt = run.path("config.json").read_bytes(), run.receipt()
                config = world_config(world, "csv")
                edit(config)
                other = world.train(config, run.dir.parent / "otherwise")
                other.path("config.json").write_bytes(honest)
                other.put_lines(run.lines()[:1] + other.lines()[1:])
                other.forget_after(end)
                checkpoint = other.checkpoint(end)
                state = checkpoint.state
                state["chain"][0] = receipt["first_weights"]
                lines = other.lines()[:state["metrics"]["lines"]]
                state["metrics"] = mark_of(lines)
                checkpoint.state = state
                other.relabel(checkpoint, receipt)
                checkpoint.save()
                other.resume()
                return [other.dir, "--all"]
            run.train_otherwise(start, end, edit)
            return None
        number = start // 100 + 1
        first = "first_weights" if start == 0 and name == "seed" else None
        ALL.add(f"another {name} from {start} to {end}", _,
                f"trains segment {number} with another {name}, puts recipe and config back, rebuilds the chain",
                found("first_weights", r"segment 1 of 4") if first else segment(number, 4),
                long=name not in ("rate", "seed"))


# ---- a recipe that is not that of the training, everywhere alike ---------------------------------

def lie(run, edit):
    """Says another recipe in all places, and rebuilds the chain."""
    run.edit_config(edit)
    run.edit_record(0, lambda record: edit(record["config"]))
    receipt, honest = run.receipt(), run.receipt()
    edit(receipt["recipe"])
    edit(receipt["evaluations"])
    receipt["hashed"] = hashed_keys(honest, receipt["recipe"])
    run.put_receipt(receipt)
    run.rehash()


def set_key(key, value):
    """Sets a key where the object has it."""
    *groups, last = key.split(".")

    def edit(config):
        for group in groups:
            config = config.get(group, {})
        if last in config:
            config[last] = value
    return edit


LIES = [("seed", 4, found("first_weights")), ("optimizer.lr", 0.051, segment(1, 4)),
        ("optimizer.momentum", 0.8, segment(1, 4)), ("optimizer.weight_decay", 1e-4, segment(1, 4)),
        ("optimizer.nesterov", True, segment(1, 4)), ("optimizer.clip_norm", 0.1, segment(1, 4)),
        ("init", {"name": "xavier"}, member("first_weights")), ("schedule", {"name": "step", "every_epochs": 9,
                                                                             "gamma": 0.5, "warmup_epochs": 0},
                                                                segment(1, 4)),
        ("label_smoothing", 0.1, segment(1, 4)), ("shards", 1, segment(1, 4)),
        ("batch_size", 128, found("chain", "end", "segment 1")), ("data.limit", 256, member("data.training")),
        ("data.drop", [], found("data.training", "first_weights")), ("data.standardize", False, member("data.training")),
        ("data.clip", 0.5, member("data.training")), ("data.validation", 0.25, member("data.training")),
        ("loss", "bce", F.NOTICED), ("epochs", 174, found("epochs", "end", "chain")),
        ("epochs", 176, found("epochs", "end", "chain")), ("eval_every", 5, found("eval", "metrics.jsonl")),
        ("data.target", "c", found("data.training", "first_weights")), ("data.clip", 1000, found("weights_file_sha256")),
        ("gradient_scale", "nominal", nothing(F.NO_EFFECT)), ("on_nonfinite", "skip", nothing(F.NO_EFFECT)),
        ("lr_scaling", "linear", nothing(F.NO_EFFECT)), ("huber_delta", 2, F.NOTICED),
        ("precision", "tf32", nothing(F.NO_EFFECT)), ("patience", 100, nothing(F.NO_EFFECT)),
        ("monitor", "loss", found("metric", "metrics.jsonl")), ("data.missing", "zero", found("weights_file_sha256"))]

for key, value, expect in LIES:
    ALL.add(f"recipe says {key} {value}", lambda world, run, key=key, value=value: lie(run, set_key(key, value)),
            f"says {key} {value} in config, records, checkpoints and receipt; rebuilds the chain", expect,
            long=key not in ("seed", "optimizer.lr", "init", "data.limit", "patience"))


@ALL.of("recipe says the model has tanh", "says another layer everywhere", segment(1, 4))
def _(_world, run):
    def edit(config):
        if "model" in config:
            config["model"]["layers"][1]["type"] = "tanh"
    lie(run, edit)


@ALL.of("end: patience is not reached", "ends the run by hand, and says that patience did", found("epochs", "end", "after step"),
        of="weighted")
def _(world, run):
    config = world_config(world, "weighted")
    config.update(patience=0, epochs=60)
    forged = world.train(config, run.dir.parent / "ended")
    lie(forged, lambda c: [set_key("patience", 2)(c), set_key("epochs", 400)(c)])
    return [forged.dir, "--all"]


for drawn, expect in (([], found("epochs", "end", "chain", "after step")), (["--segments", "0"], nothing(F.PATIENCE))):
    ALL.add("end: later than patience" + (", drawn" if drawn else ""),
            lambda world, run, drawn=drawn: (lie(run, set_key("patience", 2)), [run.dir, *(drawn or ["--all"])])[1],
            "says that patience was 2, by which the run would have ended earlier", expect,
            verifier="has the run's directory and own data; --segments 0" if drawn else F.WHOLE)


# ---- the order of the rows -----------------------------------------------------------------------

def other_order(run):
    """Trains segment 2 with the rows of the epochs 30 to 79 instead of 50 to 99, and says so in its first checkpoint;
    the state hash contains no epoch."""
    receipt, honest = run.receipt(), run.checkpoint(200).state
    other = run.copy_to(run.dir.parent / "order")
    other.edit_config(lambda c: c["checkpoint"].update(every_steps=20, every_seconds=0, keep=1000))
    begin = other.checkpoint(100)
    place(begin, 60, 0)
    other.forget_after(0)
    begin.save(other.checkpoint_path(60))
    other.resume()
    forged = other.checkpoint(160)
    forged.state = honest
    run.relabel(forged, receipt)
    run.forget_after(100)
    forged.save(run.checkpoint_path(200))
    run.resume()
    lying = run.checkpoint(100)
    state = lying.state
    state["position"].update(epoch=29)
    lying.state = state
    lying.save()


@ALL.of("rows of other epochs from 100 to 200", "trains segment 2 with the order of other epochs; the position in the "
        "checkpoint says so", segment(2, 4))
def _(_world, run):
    other_order(run)


@ALL.of("rows of other epochs from 100 to 200, drawn", "the same; the verifier draws both middle segments", segment(2, 4),
        verifier="has the run's directory and own data; --segments 2")
def _(_world, run):
    other_order(run)
    return [run.dir, "--segments", "2"]


# ---- rows ----------------------------------------------------------------------------------------

def change_line(number, change):
    def edit(text):
        lines = text.splitlines()
        lines[number] = change(lines[number])
        return "\n".join(line for line in lines if line is not None) + "\n"
    return edit


def swap_lines(text):
    lines = text.splitlines()
    lines[5], lines[6] = lines[6], lines[5]
    return "\n".join(lines) + "\n"


def flip(line):
    return line.replace(",yes,", ",NO,").replace(",no,", ",yes,").replace(",NO,", ",no,")


def nudge(line):
    first, rest = line.split(",", 1)
    return f"{float(first) + 0.0001:.4f},{rest}"


ROWS = [("a label flipped", "train.csv", change_line(10, flip), "training"),
        ("a value changed by 0.0001", "train.csv", change_line(10, nudge), "training"),
        ("two rows swapped", "train.csv", swap_lines, "training"),
        ("a row left out", "train.csv", change_line(10, lambda _: None), "training"),
        ("a row twice", "train.csv", change_line(10, lambda line: line + "\n" + line), "training"),
        ("a test label flipped", "test.csv", change_line(10, flip), "test"),
        ("a test row left out", "test.csv", change_line(10, lambda _: None), "test"),
        ("two test rows swapped", "test.csv", swap_lines, "test")]


def train_on(world, run, name, edit):
    folder = run.dir.parent / "data"
    folder.mkdir()
    for file in ("train.csv", "test.csv"):
        text = (world.data / file).read_text(encoding="utf-8")
        (folder / file).write_text(edit(text) if file == name else text, encoding="utf-8")
    config = world_config(world, "csv")
    config["data"].update(path=str(folder / "train.csv"), test_path=str(folder / "test.csv"))
    return world.train(config, run.dir.parent / "otherwise")


def with_hashes(forged, honest, keys):
    """Puts the hashes of the honest data into the receipt."""
    receipt = forged.receipt()
    for subset, hashes in honest.receipt()["data"].items():
        for key in keys:
            receipt["data"][subset][key] = hashes[key]
    forged.put_receipt(receipt)


KEPT = ("file_sha256", "rows", "rows_sha256")
for name, file, edit, subset in ROWS:
    long = name not in ("a label flipped", "a test label flipped", "two rows swapped")

    def _(world, run, file=file, edit=edit):
        return [train_on(world, run, file, edit).dir, "--all"]
    ALL.add(f"rows: {name}, hashes of the prover's data", _, f"trains on other data: {name}; the receipt has their hashes",
            member(f"data.{subset}"), long=long)

    def _(world, run, file=file, edit=edit):
        forged = train_on(world, run, file, edit)
        with_hashes(forged, run, KEPT[:1])
        return [forged.dir, "--all"]
    ALL.add(f"rows: {name}, hash of the file kept", _, f"trains on other data: {name}; the receipt has the hash of the "
            "honest file", member(f"data.{subset}"), long=True)

    def _(world, run, file=file, edit=edit):
        forged = train_on(world, run, file, edit)
        with_hashes(forged, run, KEPT)
        return [forged.dir, "--all"]
    ALL.add(f"rows: {name}, all hashes kept", _, f"trains on other data: {name}; the receipt has all hashes of the honest "
            "data", found(r"segment 1 of \d") if subset == "training" else found("eval", "metrics.jsonl"),
            long=long and subset == "training")


@ALL.of("rows: poisoned and declared", "trains on poisoned rows that the verifier has too", nothing(F.DATA))
def _(world, run):
    forged = train_on(world, run, "train.csv", change_line(10, flip))
    folder = run.dir.parent / "data"
    return [forged.dir, "--all", "--set", f"data.path={folder / 'train.csv'}", "--set",
            f"data.test_path={folder / 'test.csv'}"]


@ALL.of("rows: poisoned, and the verifier names no data", "the config names poisoned data, and the verifier uses it",
        nothing(F.DATA), verifier="has the run's directory and reads the data that its config names; --all")
def _(world, run):
    forged = train_on(world, run, "train.csv", change_line(10, flip))
    return [forged.dir, "--all", "--set", f"data.path={run.dir.parent / 'data' / 'train.csv'}"]


@ALL.of("rows: test rows trained on, declared", "trains on the test rows too, which the table has", nothing(F.TEST_ROWS))
def _(world, run):
    test = (world.data / "test.csv").read_text(encoding="utf-8").splitlines()[1:]
    forged = train_on(world, run, "train.csv", lambda text: text + "\n".join(test) + "\n")
    folder = run.dir.parent / "data"
    return [forged.dir, "--all", "--set", f"data.path={folder / 'train.csv'}", "--set",
            f"data.test_path={folder / 'test.csv'}"]


@ALL.of("rows: test rows trained on, denied", "trains on the test rows too; the receipt has the hashes of the honest table",
        segment(1, 4))
def _(world, run):
    test = (world.data / "test.csv").read_text(encoding="utf-8").splitlines()[1:]
    forged = train_on(world, run, "train.csv", lambda text: "\n".join(text.splitlines()[:385] + test) + "\n")
    with_hashes(forged, run, KEPT)
    return [forged.dir, "--all"]


# ---- pictures ------------------------------------------------------------------------------------

def train_on_other_pictures(world, run):
    """Changes a picture, trains, and puts the honest picture back: the packed file has the other one."""
    folder = run.dir.parent / "photos"
    shutil.copytree(world.data / "photos", folder)
    picture = folder / "train" / "dark" / "03.ppm"
    honest = picture.read_bytes()
    picture.write_bytes(honest[:-30] + bytes(255 - b for b in honest[-30:]))
    config = world_config(world, "folder")
    config["data"]["path"] = str(folder)
    forged = world.train(config, run.dir.parent / "otherwise")
    picture.write_bytes(honest)
    return forged


@ALL.of("pictures: another picture in the packed file", "trains on a packed file with another picture", member("data"),
        of="folder")
def _(world, run):
    return [train_on_other_pictures(world, run).dir, "--all"]


@ALL.of("pictures: another picture in the packed file, hashes kept", "the same; the receipt has the honest hashes",
        segment(1, 1), of="folder")
def _(world, run):
    forged = train_on_other_pictures(world, run)
    forged.edit_receipt(lambda r: r.update(data=run.receipt()["data"]))
    return [forged.dir, "--all"]


# ---- other runs ----------------------------------------------------------------------------------

for key, value in (("seed", 4), ("optimizer.lr", 0.06)):
    ALL.add(f"best of many: {key}", lambda world, run, key=key, value=value: [another(world, **{key: value}).dir, "--all"],
            f"trains with many values of {key}, and shows the best run alone", nothing(F.CHOSEN))

ALL.add("the whole run of another person", lambda world, run: None, "gives another person's run as one of their own",
        nothing(F.WHEN))


# ---- sampling ------------------------------------------------------------------------------------

def drawn(*touched):
    """Forges these segments of the long run, counted from 1, each so that the next begins honestly."""
    def make(_world, run):
        for number in touched:
            run.go_on_from(100 * number, lambda c: c.next_float("fc1.weight"))
        return [run.dir]
    return make


SAMPLES = "has the run's directory and own data; --segments N --seed 1, 2, …"
for touched, count, long in (((6,), 1, True), ((6,), 3, False), ((12,), 5, True), ((2,), 10, True),
                             ((3, 8), 3, True), ((2, 4, 6, 8, 10), 1, True), ((2, 4, 6, 8, 10), 3, False),
                             ((7, 8, 9), 11, True)):
    ALL.add(f"sampling: {len(touched)} of 11 forged, {count} drawn, at {touched[0]}", drawn(*touched),
            f"forges segments {touched} of 13", rate(len(touched), 11, count), of="long", verifier=SAMPLES, long=long)

for number in (1, 13):
    def _(_world, run, number=number):
        if number == 1:
            return drawn(1)(_world, run)
        weights = Tensors(run.path("weights.safetensors"))
        weights.next_float("fc1.weight")
        put_weights(run, weights)
        return [run.dir]
    ALL.add(f"sampling: segment {number} of 13 forged", _, f"forges segment {number} of 13, which is always replayed",
            rate(1, 1, 1), of="long", verifier=SAMPLES.replace("N", "1"), long=number == 1)


@ALL.of("sampling: the checkpoint after a forged segment is missing", "forges a middle segment, and removes the checkpoint before it",
        segment(6, 13), of="long", verifier="has the run's directory and own data; --segments 11")
def _(_world, run):
    drawn(6)(_world, run)
    run.checkpoint_path(500).unlink()
    return [run.dir, "--segments", "11"]
