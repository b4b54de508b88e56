#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that the manifests and job scripts of examples/ can be read and agree with the program.

    manifests.py ROOT TRAINER

Skipped (77) if PyYAML is missing.
"""
import pathlib
import re
import subprocess
import sys

KINDS = {"Service": "v1", "StatefulSet": "apps/v1", "MPIJob": "kubeflow.org/v2beta1",
         "PersistentVolumeClaim": "v1"}


def fail(what):
    print("FAILED:", what)
    sys.exit(1)


def commands(node):
    """Of every container: its words, and where they are a shell's, the script."""
    if isinstance(node, dict):
        if "command" in node:
            yield node["command"] + node.get("args", [])
        for value in node.values():
            yield from commands(value)
    elif isinstance(node, list):
        for value in node:
            yield from commands(value)


def check_options(where, text, known):
    """Those behind the program's name."""
    text = text.replace("\\\n", " ")
    for line in re.findall(r"(?:lockstep|\$@|set --)[ \"].*", text):
        for option in re.findall(r"(?<!\S)--[a-z][a-z-]*", line):
            if option not in known:
                fail(f"{where}: the program has no {option}")


def check_shell(where, script):
    done = subprocess.run(["sh", "-n"], input=script, text=True, check=False, stderr=subprocess.PIPE)
    if done.returncode:
        fail(f"{where}: {done.stderr}")


def check_stateful_set(where, documents):
    """The names by which pods reach each other are those of the service, and all count to the same number."""
    by_kind = {d["kind"]: d for d in documents}
    spec, service = by_kind["StatefulSet"]["spec"], by_kind["Service"]
    container = spec["template"]["spec"]["containers"][0]
    script = container["args"][0]
    members = {e["name"]: e["value"] for e in container["env"]}["MEMBERS"]
    joined = re.search(r"-0\.([a-z-]+):(\d+)", script)
    listened = re.search(r"--listen :(\d+)", script)
    if spec["serviceName"] != service["metadata"]["name"] or joined.group(1) != spec["serviceName"]:
        fail(f"{where}: the service has another name")
    if service["spec"]["selector"] != spec["selector"]["matchLabels"] or service["spec"]["clusterIP"] != "None":
        fail(f"{where}: the service does not lead to the pods")
    if len({joined.group(2), listened.group(1), str(service["spec"]["ports"][0]["port"])}) != 1:
        fail(f"{where}: the ports differ")
    if int(members) != spec["replicas"]:
        fail(f"{where}: {members} members, {spec['replicas']} replicas")
    mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
    if f"--secret {mounts['secret']}/" not in script:
        fail(f"{where}: the secret is mounted elsewhere")


def main():
    root, trainer = map(pathlib.Path, sys.argv[1:])
    help_text = subprocess.run([trainer, "--help"], check=True, stdout=subprocess.PIPE, text=True).stdout
    known = set(re.findall(r"--[a-z][a-z-]*", help_text))
    scripts = sorted((root / "examples").glob("slurm/*.sh"))
    for path in scripts:
        check_shell(path, path.read_text(encoding="utf-8"))
    try:
        import yaml  # pylint: disable=import-outside-toplevel
    except ImportError:
        print("skipped: PyYAML is missing (python3-yaml)")
        sys.exit(77)
    manifests = sorted((root / "examples/kubernetes").glob("*.yaml"))
    if not scripts or len(manifests) < 2:
        fail("examples are missing")
    for path in manifests:
        where = path.relative_to(root)
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
        for d in documents:
            if KINDS.get(d["kind"]) != d["apiVersion"] or not d["metadata"]["name"]:
                fail(f"{where}: {d['kind']} of {d['apiVersion']}")
        for words in commands(documents):
            if words[:2] == ["sh", "-c"]:
                check_shell(where, words[2])
            check_options(where, "\n".join(words) if words[0] == "sh" else " ".join(words), known)
        if any(d["kind"] == "StatefulSet" for d in documents):
            check_stateful_set(where, documents)
    print(len(manifests), "manifests,", len(scripts), "job scripts")


if __name__ == "__main__":
    main()
