#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Signs a receipt and checks the signatures with the commands of docs/verify.md, and compares what they print with
what the page says: of the receipt, and of one that was changed afterwards.

    signatures.py ROOT
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# What each tool prints about a good signature and about a bad one, as the page says.
SAID = {"ssh-keygen": ('Good "lockstep" signature for ada@example.org', "Could not verify signature."),
        "minisign": ("Signature and comment signature verified", "Signature verification failed")}


def shell(command, home):
    done = subprocess.run(["sh", "-c", command], cwd=home, env={**os.environ, "HOME": str(home)}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout + done.stderr


def check(tool, commands, home):
    """Yields what is wrong with the page's commands of a tool."""
    good, bad = SAID[tool]
    ours = [c for c in commands if c.startswith((tool, "echo"))]
    *before, verify = [c for c in ours if not c.startswith("ssh-keygen -t")]
    for command in before:
        code, text = shell(command, home)
        if code:
            yield f"{command}: {code}: {text}"
    code, text = shell(verify, home)
    if code or good not in text:
        yield f"{verify}: {code}: expected '{good}' in: {text}"
    receipt = (home / "receipt.json").read_text()
    (home / "receipt.json").write_text(receipt.replace("1", "2"))
    code, text = shell(verify, home)
    if not code or bad not in text:
        yield f"{verify} of a changed receipt: {code}: expected '{bad}' in: {text}"
    (home / "receipt.json").write_text(receipt)


def main():
    page = (pathlib.Path(sys.argv[1]) / "docs/verify.md").read_text(encoding="utf-8")
    commands = [re.split(r"\s+#", c)[0] for c in re.findall(r"(?m)^    ((?:ssh-keygen|minisign|echo) .*)$", page)]
    tools = [t for t in SAID if shutil.which(t)]
    if not tools:
        print("skipped: there is neither ssh-keygen nor minisign")
        return 77
    wrong = [f"the page does not say '{text}'" for texts in SAID.values() for text in texts if f"`{text}`" not in page]
    # keys without a password, which a test cannot type
    keys = {"ssh-keygen": "mkdir .ssh && ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519 && cp .ssh/id_ed25519.pub .",
            "minisign": "minisign -G -W"}
    with tempfile.TemporaryDirectory() as scratch:
        home = pathlib.Path(scratch)
        (home / "receipt.json").write_text('{"epochs":1}\n')
        for tool in tools:
            code, text = shell(keys[tool], home)
            if code:
                print(f"left out: {keys[tool]}: {text}")  # an old version
            else:
                wrong += check(tool, commands, home)
    for line in wrong:
        print("FAILED:", line)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
