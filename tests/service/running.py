# SPDX-License-Identifier: MIT
"""Helpers: a running service, curl, and examples to send."""
import http.client
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import struct
import subprocess
import tempfile
import time

PIXELS = 784
BYTES = ("-H", "Content-Type: application/octet-stream", "--data-binary")


def image(number):
    """A bar whose place is the label, and the number in the first bytes, so that it is found again."""
    label = number % 10
    pixels = bytearray((number * 31 + i * 7) % 40 for i in range(PIXELS))
    for row in range(label * 28 // 10, label * 28 // 10 + 3):
        pixels[row * 28 + 6:row * 28 + 28] = bytes([220]) * 22
    pixels[0:4] = struct.pack("<I", number)
    return bytes(pixels)


def example(number):
    return bytes([number % 10]) + image(number)


def examples(first, count):
    return b"".join(example(i) for i in range(first, first + count))


class Answer:
    def __init__(self, code, headers, body):
        self.code, self.headers, self.body = code, headers, body

    def json(self):
        return json.loads(self.body)


def curl(url, *arguments, data=None):
    """The answer to curl's request; `data` goes in through stdin, as -d @- wants it."""
    command = ["curl", "-sS", "-m", "20", "-i", *arguments, url]
    done = subprocess.run(command, input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(command)}: {done.stderr.decode()}")
    rest = done.stdout
    while True:  # 100 Continue comes first, sometimes
        head, _, rest = rest.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        code = int(lines[0].split()[1])
        if code != 100:
            break
    pairs = (line.split(": ", 1) for line in lines[1:] if ": " in line)
    headers = {name.lower(): value for name, value in pairs}
    return Answer(code, headers, rest.decode())


def metrics(answer):
    """Name with labels → value. Whatever is not Prometheus' text form is an error."""
    values, kinds, told = {}, {}, None
    name = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
    sample = re.compile(rf'({name})(\{{({name}="[^"\\]*",?)+\}})? (\S+)')
    assert answer.body.endswith("\n")
    for line in answer.body.splitlines():
        if line.startswith("# HELP "):
            told = line.split()[2]
            assert told not in kinds, f"{told} comes twice"
        elif line.startswith("# TYPE "):
            _, _, of, kind = line.split()
            assert of == told and kind in ("counter", "gauge", "histogram"), line
            kinds[of] = kind
        else:
            found = sample.fullmatch(line)
            assert found, f"no metric: {line}"
            base = re.sub("_(bucket|sum|count)$", "", found[1]) if kinds[told] == "histogram" \
                else found[1]
            assert base == told, line
            key = found[1] + (found[2] or "")
            assert key not in values, f"{key} comes twice"
            values[key] = float(found[4])
    for key, value in values.items():
        if '_bucket{' in key and 'le="+Inf"' in key:
            count = re.sub(r',?le="\+Inf"', "", key).replace("_bucket", "_count").replace("{}", "")
            assert values[count] == value, key
    return values


class Service:
    """One run of the program; `state` stays between runs."""

    def __init__(self, program, config, state, *options, environment=None, limits=None):
        self.log_path = pathlib.Path(state).parent / "log"
        self.log = open(self.log_path, "w", encoding="utf-8")
        self.process = subprocess.Popen(
            [program, "--state", str(state), "--port", "0", *options, str(config)],
            stderr=self.log, stdout=self.log, env={**os.environ, **(environment or {})},
            preexec_fn=lambda: [resource.setrlimit(*limit) for limit in (limits or {}).items()])
        self.url = self.find_url()

    def said(self):
        return self.log_path.read_text(encoding="utf-8")

    def find_url(self):
        until = time.monotonic() + 60
        while time.monotonic() < until:
            found = re.search(r"listening on (http://\S+)", self.said())
            if found:
                return found[1]
            if self.process.poll() is not None:
                return None
            time.sleep(0.02)
        raise AssertionError(f"it does not listen: {self.said()}")

    def port(self):
        return int(self.url.rsplit(":", 1)[1])

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port(), timeout=60)

    def metrics(self):
        answer = curl(self.url + "/metrics")
        assert answer.code == 200, answer.body
        return metrics(answer)

    def wait(self, wanted, what, seconds=60):
        """Until wanted(metrics); they are returned."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            values = self.metrics()
            if wanted(values):
                return values
            time.sleep(0.1)
        raise AssertionError(f"{what}: not within {seconds} s; {values}; {self.said()}")

    def ready(self):
        self.wait(lambda m: m["service_ready"] == 1, "ready")
        return self

    def begun_at(self):
        """The step that the log says it has begun at."""
        return int(re.search(r"begins at step (\d+)", self.said())[1])

    def saved(self):
        """The newest step that the log says is saved, or 0."""
        return max(map(int, re.findall(r"saved: step (\d+)", self.said())), default=0)

    def end(self, number=signal.SIGTERM):
        """Its exit status, with what a sanitizer found as an error."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(timeout=100)
        self.log.close()
        for finding in ("Sanitizer", "runtime error"):
            assert finding not in self.said(), self.said()
        return status


class Place:
    """A folder with a state directory in it, and the service that is run there; removed in the end."""

    def __init__(self, program, root, shim):
        self.program, self.root, self.shim = program, pathlib.Path(root), shim
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-service-"))
        self.state = self.folder / "state"
        self.config = pathlib.Path(__file__).parent / "config.json"
        self.services = []

    def start(self, *options, fault=None, limits=None):
        """`limits` are resource limits, (soft, hard) each; `fault` is what the shim of tests/campaigns shall do to the state directory's files."""
        environment = None
        if fault:
            environment = {"LD_PRELOAD": self.shim, "LS_FS_ROOT": str(self.state), **fault}
        service = Service(self.program, self.config, self.state, "--set", "devices=cpu:1", *options,
                          environment=environment, limits=limits)
        self.services.append(service)
        return service

    def sanitized(self):
        """Whether the service was built with a sanitizer, and is several times slower."""
        program = pathlib.Path(self.program).read_bytes()
        return b"__asan_init" in program or b"__tsan_init" in program

    def save(self):
        return self.state / "model.safetensors"

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        for service in self.services:
            if service.process.poll() is None:
                service.process.kill()
                service.process.wait()
            if kind and service is self.services[-1]:
                print(service.said())
        shutil.rmtree(self.folder)
