#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""called.py PROGRAM SOURCE: whatever the program prints, it calls itself by the name with which it was called.

The program is called by a link of another name, with wrong arguments for every verb and every option that --help lists,
and for runs that end with warnings, hints and errors. Then every string literal of the program and of the library is
searched for a command that begins with a fixed name.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

NAME = "zebra"
CONFIG = {"name": "small", "data": {"name": "synthetic", "limit": 96}, "devices": "ref:2", "batch_size": 64,
          "shards": 2, "epochs": 1, "optimizer": {"name": "sgd", "lr": 0.05}, "run_dir": "run",
          "model": {"layers": [{"type": "flatten"}, {"type": "dense", "out": 10}]}}
NAMES = "names, lockstep and trainer."  # the sentence of --help that tells the installed names
failures, calls = [], 0


def call(*arguments, program=f"bin/{NAME}", name=NAME, **more):
    """Runs the program and checks both streams. Returns exit code, standard output and standard error."""
    global calls
    calls += 1
    run = subprocess.run([program, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                         timeout=100, **more)
    shown = f"{program} {' '.join(map(str, arguments))}"
    for line in (run.stdout + run.stderr).splitlines():
        if re.search(r"\btrainer\b", line.replace(NAMES, "")) and name != "trainer":
            failures.append(f"{shown}: {line}")
    if run.returncode and not re.search(rf"^{name}[ :]", run.stderr, re.M):
        failures.append(f"{shown}: exit code {run.returncode}, and no line begins with {name}: {run.stderr!r}")
    return run.returncode, run.stdout, run.stderr


def expect(found, text):
    if text not in found:
        failures.append(f"expected {text!r}, found {found!r}")


def verbs_of(usage):
    return re.findall(r"(?:%s|\|) +([a-z][a-z-]+)" % NAME, usage)


def options_of(text):
    return re.findall(r"^  (--?[a-z][a-z-]*)", text, re.M)


def try_wrong_arguments():
    main = call("--help")[1]
    verbs = verbs_of(main.split("\n\n")[0])
    assert len(verbs) >= 12 and "find-lr" in verbs and "compare" in verbs, verbs
    call("--help", "config")
    expect(call("evil", "run")[2], f"did you mean `bin/{NAME} eval`?")
    for verb in [[], ["train"]] + [[verb] for verb in verbs]:
        code, text, _ = call(*verb, "--help")
        options = options_of(text)
        assert code == 0 and "--help" in text + main and (options or verb == ["devices"]), verb
        expect(text.splitlines()[0] + " ", f"usage: {NAME} " + (f"{verb[0]} " if verb and verb[0] != "train" else ""))
        expect(call(*verb, "--no-such-option")[2], f"`bin/{NAME}")
        for arguments in [[], ["nowhere"], ["nowhere", "b", "c", "d"]]:
            call(*verb, *arguments)
        for option in options:
            if option not in ("--help", "--version"):
                call(*verb, option)
                call(*verb, "nowhere", option, "?")
    call("--version")


def try_runs():
    Path("config.json").write_text(json.dumps(CONFIG))
    code, out, err = call("config.json")
    assert code == 0, err
    expect(err, f"bin/{NAME} eval run")
    stop = ("--set", "on_device_loss=stop", "--set", "epochs=3", "--set", "checkpoint.every_steps=1", "--inject",
            "worker=1,step=4,kind=fail")
    expect(call("config.json", "--set", "run_dir=lost", *stop)[2], f"{NAME}: ")
    expect(call("config.json", "--devices", "ref:3", "--set", "run_dir=three")[2], f"{NAME}: warning: 1 of 3 workers")
    expect(call("config.json", "--devices", "gpu")[2], f"{NAME}: ")
    expect(call("config.json", "--set", "data.name=folder", "--set", "data.path=config.json")[2], f"{NAME}: ")
    expect(call("config.json", "--resume", "nowhere")[2], f"{NAME}: ")
    for arguments in (["eval", "run"], ["predict", "run", "config.json"], ["predict", "run", "--rows", "0:2"],
                      ["report", "run"], ["export", "run", "--to", "w.safetensors"],
                      ["export", "run", "--to", "w.txt"], ["runs", "."], ["compare", "run", "three"],
                      ["compare", "run", "nowhere"], ["eval", "run", "--data", "nowhere.csv"],
                      ["pack", "."], ["pack", ".", "--to", "p.safetensors"], ["devices"], ["init", "config.json"],
                      ["sweep", "config.json", "--vary", "lr=1,x"], ["find-lr", "config.json", "--svg", "/nowhere/x"]):
        call(*arguments)
    Path("two.csv").write_text("a,b\n" + "".join(f"{i % 9}.5,{'xy'[i % 2]}\n" for i in range(60)))
    expect(call("init", "two.csv", "--to", "two.json")[1], f"`bin/{NAME} two.json`")
    call("init", "two.csv", "--to", "three.json", "--train", "--set", "epochs=1", "--set", "devices=ref:1",
         "--set", "run_dir=own")
    for run in ("run", "own"):
        expect(Path(run, "notes.jsonl").read_text(), f'"command":"bin/{NAME} ')


def try_names(program):
    """Names with a blank, and none at all."""
    Path("bin/two words").symlink_to(program)
    expect(call("evil", program="bin/two words", name="two words")[2], "`'bin/two words' eval`")
    expect(call("--no-such", program="", name="trainer", executable=program)[2], "trainer: unknown option")


def search_sources(source):
    """Finds fixed names in string literals, those of several lines included, and in the page's scripts."""
    verbs = "|".join(verbs_of(call("--help")[1].split("\n\n")[0]))
    fixed = re.compile(rf"(?:^|[`(]|\\n|: ) *(?:trainer|lockstep)(?:: | (?:{verbs}|train|CONFIG|RUN|--[a-z]+)\b)")
    count = 0
    for file in sorted([*source.glob("src/*/*.c"), *source.glob("src/*/*.h"), *source.glob("src/page/*.js")]):
        text = re.sub(r"/\*.*?\*/", "", file.read_text(), flags=re.S)
        if file.suffix == ".js":
            literals = re.findall(r"'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`", text)
        else:
            literals = ["".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', run)) for run in
                        re.findall(r'(?:"(?:[^"\\\n]|\\.)*"\s*)+', text)]
        count += len(literals)
        failures.extend(f"{file}: {literal[:120]!r} names the program" for literal in literals if fixed.search(literal))
    assert count > 3000, count


def main():
    program, source = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        os.mkdir("bin")
        Path("bin", NAME).symlink_to(program)
        os.environ["XDG_CACHE_HOME"] = scratch
        try_wrong_arguments()
        try_runs()
        try_names(program)
        search_sources(source)
        os.chdir("/")
    print(*failures[:40], f"{calls} calls, {len(failures)} failures", sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
