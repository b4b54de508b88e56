#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests the HTTP service from outside, in scenarios ("stories").

    stories.py PROGRAM SOURCE-FOLDER STORY [SHIM]

SHIM is the library of tests/campaigns that makes file system calls fail; some stories need it. Exit
status 77: curl is missing.
"""
import http.client
import json
import math
import re
import shutil
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

from dribble import Dribblers, asks, cpu_seconds, is_closed_within
from running import BYTES, Place, curl, example, examples, image

BATCH = 64


def same(found, expected):
    assert found == expected, f"found {found!r}, expected {expected!r}"


# ---- requests -----------------------------------------------------------------------------------

def answers(place):
    service = place.start().ready()
    url = service.url
    same(curl(url + "/healthz").json()["status"], "ok")
    same(curl(url + "/healthz", "-I").code, 200)
    answer = curl(url + "/examples", *BYTES, "@-", data=examples(0, 100))
    same((answer.code, answer.json()), (200, {"accepted": 100}))
    same(answer.headers["content-type"], "application/json")
    answer = curl(url + "/examples", *BYTES, "@-", "-H", "Transfer-Encoding: chunked",
                  data=examples(100, 300))
    same((answer.code, answer.json()), (200, {"accepted": 300}))
    as_bytes = curl(url + "/predict", *BYTES, "@-", data=image(1) + image(2)).json()
    same(len(as_bytes["predictions"]), 2)
    for prediction in as_bytes["predictions"]:
        shares = prediction["probabilities"]
        same(len(shares), 10)
        assert abs(sum(shares) - 1) < 1e-4, shares
        same(shares.index(max(shares)), prediction["class"])
    values = service.metrics()
    same(values["service_examples_accepted_total"], 400)
    same(values["service_predictions_total"], 2)
    assert values['service_requests_total{code="2xx"}'] >= 5, values
    same(curl(url + "/metrics").headers["content-type"],
         "text/plain; version=0.0.4; charset=utf-8")
    same(service.end(), 0)


def keep_threshold(source, to, threshold):
    """Copies a model file, with a threshold in its description, as `trainer eval --threshold T --keep` stores it."""
    change_card(source, to, lambda card: {**card, "threshold": threshold})


def change_card(source, to, change):
    """Copies a model file with another description."""
    content = source.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + size])
    card = json.loads(header["__metadata__"]["lockstep_model"])
    header["__metadata__"] = {"lockstep_model": json.dumps(change(card))}
    text = json.dumps(header).encode()
    to.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + size:])


def predicts_rows(place):
    former = place.root / "tests" / "cli" / "former_models"
    for name, row, expect in (("classes", {"a": 0.5, "b": "48.5", "c": "x", "more": [1]}, "class"),
                              ("value", {"a": 0.5, "b": "48.5", "c": "x"}, "value")):
        service = place.start("--model", str(former / f"{name}.safetensors"), "--state", str(place.folder / name)).ready()
        send = lambda body: curl(service.url + "/rows", "-H", "Content-Type: application/json", "--data-binary", "@-",
                                 data=json.dumps(body).encode())
        row.pop("more", None)
        answer = send([row, {**row, "c": "none"}, {"a": 1}, 7, row])
        same(answer.code, 200)
        found = answer.json()["predictions"]
        same(len(found), 5)
        same(found[0], found[4])
        same(found[0], send(row).json()["predictions"][0])
        assert expect in found[0], found
        if expect == "class":
            shares = found[0]["probabilities"]
            same(sorted(shares), ["no", "yes"])
            same(found[0]["class"], max(shares, key=shares.get))
            label, threshold = ("no", shares["yes"] * 1.001) if found[0]["class"] == "yes" else ("yes", shares["yes"])
            kept = place.folder / "kept.safetensors"
            keep_threshold(former / "classes.safetensors", kept, threshold)
            other = place.start("--model", str(kept), "--state", str(place.folder / "kept")).ready()
            one = curl(other.url + "/rows", "-H", "Content-Type: application/json", "--data-binary", "@-",
                       data=json.dumps([row]).encode()).json()["predictions"][0]
            same((one["class"], one["probabilities"]), (label, shares))
        else:
            many = send([{**row, "a": i / 64} for i in range(200)]).json()["predictions"]
            many = [p["value"] for p in many]  # floats, with all their digits
            assert many == [struct.unpack("<f", struct.pack("<f", v))[0] for v in many]
        for wrong, word in zip(found[1:4], ("no training row", "missing", "object")):
            assert word in wrong["error"], wrong
        same(send("text").code, 400)
        same(curl(service.url + "/rows", *BYTES, "@-", data=b"{}").code, 415)
        same(service.end(), 0)
    service = place.start().ready()
    same(curl(service.url + "/rows", "-H", "Content-Type: application/json", "-d", "{}").code, 404)
    same(service.end(), 0)


def reads_json_as_a_table(place):
    """Values of JSON have the answers that docs/data.md gives for texts of a table, and for Python's True."""
    def levels(card):
        card["preparation"]["columns"][2]["levels"] = ["FALSE", "true", "90071992547409921"]
        return card
    model = place.folder / "levels.safetensors"
    change_card(place.root / "tests" / "cli" / "former_models" / "classes.safetensors", model, levels)
    service = place.start("--model", str(model), "--state", str(place.folder / "levels")).ready()
    rows = [('{"a": 1, "b": 48.5, "c": "TRUE"}', '{"a": true, "b": 4.85e1, "c": true}'),
            ('{"a": 0, "b": 10, "c": "FALSE"}', '{"a":false, "b" : 1e1, "c": "False"}'),
            ('{"a": 0, "b": 10, "c": "90071992547409921"}', '{"a": 0, "b": 10, "c":\n90071992547409921}'),
            ('{"a": -0.5, "b": 1e30, "c": true, "x\\":1": 1}', '{"a":"-0.5","b":"1e30","c":"true"}')]
    unknown = [('{"a": 1e400, "b": 1, "c": true}', "a"), ('{"a": "1e400", "b": 1, "c": true}', "a"),
               ('{"a": 1, "b": -1.5e400, "c": true}', "b"), ('{"a": 1, "b": 1, "c": 90071992547409922}', "c"),
               ('{"a": 1, "b": 1, "c": 1e400}', "c"), ('{"a": 1, "b": null, "c": true}', "b"),
               ('{"a": "TRUE", "b": 1, "c": true}', "a"), ('{"a": 1, "b": 1, "c": [1]}', "c")]
    body = "[" + ",".join([row for pair in rows for row in pair] + [row for row, _ in unknown]) + "]"
    found = curl(service.url + "/rows", "-H", "Content-Type: application/json", "--data-binary", "@-",
                 data=body.encode()).json()["predictions"]
    for i, pair in enumerate(rows):
        assert "class" in found[2 * i], (pair, found[2 * i])
        same(found[2 * i], found[2 * i + 1])
    for (row, column), answer in zip(unknown, found[2 * len(rows):], strict=True):
        assert f'column "{column}"' in answer.get("error", ""), (row, answer)
    for wrong in ('{1: 1}', '{"a": 01, "b": 1, "c": true, }', '{"a": 1. , "b": 1', '{"a": -}'):
        same(curl(service.url + "/rows", "-H", "Content-Type: application/json", "--data-binary", "@-",
                  data=wrong.encode()).code, 400)
    same(service.end(), 0)


def refuses(place):
    service = place.start("--body", "200000").ready()
    url = service.url
    size, huge = b"x" * 784, b"x" * 3000000
    cases = [
        ("/examples", [*BYTES, "@-"], size, 400, "a multiple of 785"),
        ("/examples", [*BYTES, "@-"], b"", 400, "0 bytes"),
        ("/examples", [*BYTES, "@-"], b"\x0a" + size, 400, "label 10; expected 0 to 9"),
        ("/examples", [*BYTES, "@-"], huge, 413, "at most 200000 bytes"),
        ("/examples", [*BYTES, "@-", "-H", "Transfer-Encoding: chunked"], huge, 413, "at most"),
        ("/examples", [*BYTES, "@-", "-H", "Expect: 100-continue"], huge, 413, "at most"),
        ("/examples", ["--data-binary", "@-"], size, 415, "application/octet-stream"),
        ("/predict", [*BYTES, "@-"], size + b"x", 400, "a multiple of 784"),
        ("/predict", [*BYTES, "@-"], huge, 413, "at most 200000 bytes"),
        ("/predict", [], None, 405, "/predict takes POST"),
        ("/examples", ["-X", "DELETE"], None, 405, "/examples takes POST"),
        ("/metrics", [*BYTES, "@-"], size, 405, "/metrics takes GET"),
        ("/healthz", ["-X", "PUT"], None, 405, "/healthz takes GET"),
        ("/", [], None, 404, "POST /predict"),
        ("/predict/", [*BYTES, "@-"], size, 404, "no such path"),
    ]
    for path, arguments, data, code, message in cases:
        answer = curl(url + path, *arguments, data=data)
        error = answer.json()["error"]
        assert answer.code == code and message in error, \
            f"{path} {arguments}: {answer.code} {error}; expected {code}, {message}"
        if code == 405:
            assert answer.headers["allow"] in error, answer.headers
    values = service.metrics()
    same(values["service_examples_accepted_total"], 0)
    same(values['service_requests_total{code="4xx"}'], len(cases))
    same(values["service_ready"], 1)
    same(service.end(), 0)


class Client(threading.Thread):
    """Asks about groups of images of its own, and compares with what was answered when it was alone."""

    def __init__(self, service, sizes, expected):
        super().__init__(daemon=True)
        self.service, self.sizes, self.expected, self.wrong = service, sizes, expected, []
        self.answered = 0

    def run(self):
        connection = self.service.connection()
        for size in self.sizes:
            first = size * 37 % (len(self.expected) - size)
            body = b"".join(map(image, range(first, first + size)))
            connection.request("POST", "/predict", body,
                               {"Content-Type": "application/octet-stream"})
            found = json.loads(connection.getresponse().read())["predictions"]
            wanted = self.expected[first:first + size]
            if len(found) != size or not all(map(is_like, found, wanted)):
                self.wrong.append((first, size))
            self.answered += 1


def is_like(a, b):
    return all(abs(x - y) < 1e-4 for x, y in zip(a["probabilities"], b["probabilities"]))


def answers_each_its_own(place):
    """Many clients at once, each of which gets the answers to its own images."""
    service = place.start("--passes", "5").ready()
    curl(service.url + "/examples", *BYTES, "@-", data=examples(0, 640))
    service.wait(lambda m: has_rested(m, 5 * 640 / BATCH), "idle")
    body = b"".join(map(image, range(400)))
    expected = curl(service.url + "/predict", *BYTES, "@-", data=body).json()["predictions"]
    assert not is_like(expected[0], expected[10]), "all the same"
    sizes = [1, 3, 1, 17, 64, 2, 65, 1, 30, 150, 1, 7] * 4
    clients = [Client(service, sizes[i:] + sizes[:i], expected) for i in range(12)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(60)
        same((client.answered, client.wrong), (len(sizes), []))
    same(service.metrics()["service_predictions_total"], 400 + 12 * sum(sizes))
    same(service.end(), 0)


def wait_until_learnt(service, good):
    """Waits until the training is good and predictions use its last model, which comes after the steps."""
    learnt = service.wait(lambda m: good(m) and m["service_queue_examples"] == 0, "it learns", 100)
    service.wait(lambda m: m["service_model_step"] >= learnt["lockstep_steps_total"],
                 "predictions use what it learnt")


def learns(place):
    service = place.start().ready()
    first = curl(service.url + "/predict", *BYTES, "@-", data=image(0)).json()
    same(first["step"], 0)
    for i in range(4):
        curl(service.url + "/examples", *BYTES, "@-", data=examples(i * 320, 320))
    wait_until_learnt(service, lambda m: m["lockstep_accuracy"] > 0.97)
    fresh = range(5000, 5100)
    answer = curl(service.url + "/predict", *BYTES, "@-", data=b"".join(map(image, fresh))).json()
    hits = sum(p["class"] == i % 10 for p, i in zip(answer["predictions"], fresh))
    assert hits >= 90 and answer["step"] > 0, (hits, answer["step"])
    same(service.end(), 0)


def floats(number):
    """Two numbers of very different scales; the class is the sign of their scaled sum."""
    a, b = number * 37 % 101 - 50, number * 53 % 97 - 48
    return struct.pack("<ff", a * 1000, b / 1000), int(a + b > 0)


def learns_rows_of_floats(place):
    place.config = place.folder / "floats.json"
    place.config.write_text(json.dumps({
        "data": {"name": "examples", "standardize": True}, "batch_size": BATCH,
        "model": {"layers": [{"type": "dense", "out": 2}]},
        "optimizer": {"name": "sgd", "lr": 0.5}}))
    options = ("--type", "f32", "--shape", "2x1x1", "--classes", "2")
    service = place.start(*options).ready()

    def rows(first, count, weight=1.0, wrong=0):
        return b"".join(bytes([label ^ wrong]) + struct.pack("<f", weight) + row
                        for row, label in map(floats, range(first, first + count)))

    def post(path, data):
        return curl(service.url + path, *BYTES, "@-", data=data)

    for bad, why in ((rows(0, 1, -1.0), "weight -1"), (rows(0, 1)[:-4] + struct.pack("<f", math.nan), "value 1 is nan"),
                     (rows(0, 1)[:-1], "a label, a weight and an image")):
        answer = post("/examples", bad)
        assert answer.code == 400 and why in answer.json()["error"], answer.body
    for i in range(4):
        same(post("/examples", rows(i * 160, 160) + rows(i * 160, 160, 0.0, 1)).code, 200)  # weight 0: no effect
    wait_until_learnt(service, lambda m: m["lockstep_loss"] < 0.2)
    fresh = [floats(i) for i in range(7000, 7100)]
    found = post("/predict", b"".join(row for row, _ in fresh)).json()["predictions"]
    assert sum(p["class"] == label for p, (_, label) in zip(found, fresh)) >= 90, found
    same(post("/rate", b"0.125").json(), {"rate": 0.125})
    same(post("/rate", b"fast").code, 400)
    post("/examples", rows(700, BATCH))
    service.wait(lambda m: m["lockstep_learning_rate"] == 0.125, "the rate is set")
    same(service.end(), 0)
    service = place.start(*options).ready()  # the save has the rate and the scales
    post("/examples", rows(800, BATCH))
    service.wait(lambda m: m["lockstep_learning_rate"] == 0.125, "the rate is kept")
    same(service.end(), 0)


def outlives_a_pause(place):
    """A frozen container, a machine that was suspended: the worker is as healthy as before."""
    service = place.start("--set", "deadline_s=0.5", "--set", "devices=cpu:2", "--passes", "40").ready()
    for i in range(3):
        curl(service.url + "/examples", *BYTES, "@-", data=examples(i * 640, 640))
        service.process.send_signal(signal.SIGSTOP)
        time.sleep(0.8)
        service.process.send_signal(signal.SIGCONT)
    service.wait(lambda m: has_rested(m, 40 * 1920 / BATCH), "all of it is learnt")
    assert "no sign of life" not in service.said(), service.said()
    same(service.end(), 0)


# ---- the end, and going on ----------------------------------------------------------------------

def has_rested(values, steps):
    """After that many steps, which predictions use."""
    return values["lockstep_steps_total"] >= steps and \
        values["service_queue_examples"] == 0 and \
        values["service_model_step"] == values["lockstep_steps_total"]


def resumes(place):
    """A restart goes on from the save: with the weights that it had, to the very digits."""
    service = place.start("--passes", "2").ready()
    same(service.begun_at(), 0)
    curl(service.url + "/examples", *BYTES, "@-", data=examples(0, 640))
    steps = 2 * 640 / BATCH
    values = service.wait(lambda m: has_rested(m, steps), "idle")
    same(values["lockstep_steps_total"], steps)
    before = curl(service.url + "/predict", *BYTES, "@-", data=image(7)).json()
    same(service.end(), 0)
    assert "stopped, and saved" in service.said(), service.said()
    same(service.saved(), steps)
    same(sorted(p.name for p in place.state.iterdir()), ["lock", "model.safetensors"])

    service = place.start("--passes", "2").ready()
    same(service.begun_at(), steps)
    same(curl(service.url + "/predict", *BYTES, "@-", data=image(7)).json(), before)
    curl(service.url + "/examples", *BYTES, "@-", data=examples(640, 64))
    service.wait(lambda m: has_rested(m, steps + 2), "goes on")
    same(service.end(), 0)
    same(service.saved(), steps + 2)

    place.save().write_bytes(place.save().read_bytes()[:-1])
    service = place.start()
    same(service.end(), 1)
    assert "model.safetensors" in service.said(), service.said()


class Sender(threading.Thread):
    """Sends examples, a few at a time, until the service goes away."""

    def __init__(self, service):
        super().__init__()
        self.service, self.accepted, self.strange = service, 0, None

    def run(self):
        connection = self.service.connection()
        while True:
            count = 1 + self.accepted % 5
            try:
                connection.request("POST", "/examples", examples(self.accepted, count),
                                   {"Content-Type": "application/octet-stream"})
                answer = connection.getresponse()
                answer.read()
            except (OSError, http.client.HTTPException):
                return  # it is gone
            if answer.status == 200:
                self.accepted += count
            elif answer.status != 503:
                self.strange = answer.status
                return
            else:
                time.sleep(0.01)


class Asker(threading.Thread):
    """Asks for predictions all the time."""

    def __init__(self, service):
        super().__init__()
        self.service, self.answered = service, 0

    def run(self):
        connection = self.service.connection()
        try:
            while True:
                connection.request("POST", "/predict", image(self.answered),
                                   {"Content-Type": "application/octet-stream"})
                answer = connection.getresponse()
                if json.loads(answer.read()).get("predictions"):
                    self.answered += 1
        except (OSError, http.client.HTTPException):
            return


def ends_under_load(place, number, expected_status):
    """Ended while others send and ask. What the log said to be saved is there when it starts again."""
    saved = 0
    for _ in range(3):
        service = place.start("--save-s", "1").ready()
        assert service.begun_at() >= saved, f"begins at {service.begun_at()}, but {saved} was saved"
        senders, asker = [Sender(service) for _ in range(3)], Asker(service)
        for thread in [*senders, asker]:
            thread.start()
        service.wait(lambda m: m["service_saves_total"] >= 1, "a save")
        trained = service.metrics()["lockstep_steps_total"]
        same(service.end(number), expected_status)
        for thread in [*senders, asker]:
            thread.join(60)
            assert not thread.is_alive(), "a request never ended"
        same([s.strange for s in senders], [None] * 3)
        assert asker.answered > 0 and all(s.accepted for s in senders), service.said()
        saved = service.saved()
        assert saved >= (trained if expected_status == 0 else 1), (saved, trained)
    service = place.start().ready()
    assert service.begun_at() >= saved, service.said()
    same(service.end(), 0)


def saves_at_SIGTERM(place):
    ends_under_load(place, signal.SIGTERM, 0)


def keeps_its_save_at_SIGKILL(place):
    ends_under_load(place, signal.SIGKILL, -signal.SIGKILL)


def keeps_its_save_at_a_power_cut(place):
    """The process ends before a call, and what was written since the last sync is gone."""
    saved = 0
    for calls in (3, 12, 20, 28, 30, 45, 60):
        service = place.start("--save-s", "1", "--passes", "1000000",
                              fault={"LS_FS_FAULT": "power", "LS_FS_AT": str(calls)})
        if service.url:
            sender = Sender(service)
            sender.start()
            sender.join(60)
        same(service.process.wait(60), -signal.SIGKILL)
        if "begins at" in service.said():
            assert service.begun_at() >= saved, f"call {calls}: begins at {service.begun_at()}, but {saved} was saved"
        saved = max(saved, service.saved())
    assert saved > 0, "it has never saved"
    service = place.start().ready()
    assert service.begun_at() >= saved, service.said()
    same(service.end(), 0)


# ---- limits and failures ------------------------------------------------------------------------

def holds_back(place):
    """More than the queue takes is refused, all of a request or none, until training has made room."""
    service = place.start("--passes", "0", "--queue", "100").ready()
    url = service.url + "/examples"
    same(curl(url, *BYTES, "@-", data=examples(0, 70)).code, 200)
    answer = curl(url, *BYTES, "@-", data=examples(70, 31))
    same((answer.code, answer.headers["retry-after"]), (503, "1"))
    assert "at most 100 may" in answer.json()["error"], answer.body
    same(curl(url, *BYTES, "@-", data=examples(0, 200)).code, 413)
    same(curl(url, *BYTES, "@-", data=examples(70, 30)).code, 200)
    values = service.metrics()
    same(values["service_examples_refused_total"], 31)
    same(values["service_queue_examples"], 100)
    same(service.end(), 0)
    assert "100 examples were not trained on yet" in service.said(), service.said()

    service = place.start("--passes", "1", "--queue", "100", "--replay", "10").ready()
    url = service.url + "/examples"
    for i in range(8):  # the ring goes around
        same(curl(url, *BYTES, "@-", data=examples(100 * i, 100)).code, 200)
        service.wait(lambda m: m["service_queue_examples"] == 0, "room again")
    same(service.end(), 0)


# ---- clients that mean it ill -------------------------------------------------------------------

def keeps_strangers_out(place):
    service = place.start("--host", "learn.example", "--host", "other.example").ready()
    url = service.url
    strange = ["Host: evil.example", f"Host: evil.example:{service.port()}", "Host: 127.0.0.1.evil.example",
               "Host: 192.168.7.7", "Host: [::1", "Origin: null", "Origin: http://evil.example",
               "Origin: http://localhost:1", f"Origin: http://evil.example:{service.port()}"]
    paths = [("/examples", [*BYTES, "@-"], examples(0, 3)), ("/predict", [*BYTES, "@-"], image(0)),
             ("/metrics", [], None), ("/healthz", [], None)]
    for header in strange:
        for path, arguments, data in paths:
            answer = curl(url + path, *arguments, "-H", header, data=data)
            same((header, path, answer.code), (header, path, 403))
            assert "start the server with --host and that name" in answer.json()["error"], answer.body
    for header in ("Host: localhost", "Host: LOCALHOST.:80", "Host: 127.9.9.9:1", "Host: [::1]:80",
                   "Host: learn.example", "Host: Other.Example:443", f"Origin: {url}",
                   "Origin: https://learn.example"):
        answer = curl(url + "/examples", *BYTES, "@-", "-H", header, data=examples(0, 3))
        same((header, answer.code), (header, 200))
    same(service.metrics()["service_examples_accepted_total"], 3 * 8)
    same(service.end(), 0)


def raw(service, request):
    """Sends bytes as they are. Returns the first status, the number of answers, and whether the connection was closed."""
    heard = b""
    with socket.create_connection(("127.0.0.1", service.port()), timeout=10) as one:
        one.sendall(request)
        try:
            while piece := one.recv(65536):
                heard += piece
                one.settimeout(1)  # an open connection is found by waiting
            closed = True
        except ConnectionResetError:
            closed = True
        except TimeoutError:
            closed = False
    return int(heard.split()[1]) if heard else 0, heard.count(b"HTTP/1.1 "), closed


def knows_where_a_body_ends(place):
    """Requests whose end is not certain are refused at once, and nothing after them is read as a request."""
    service = place.start("--request-s", "30").ready()
    post = b"POST /examples HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
    chunks = b"311\r\n" + example(0) + b"\r\n0\r\n\r\n"
    smuggled = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for codes, header in (
            ((501,), b"Transfer-Encoding: xchunked"), ((501,), b"Transfer-Encoding: gzip, chunked"),
            ((501,), b"Transfer-Encoding: chunked, identity"), ((501,), b"Transfer-Encoding: identity"),
            ((501,), b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked"),
            ((501,), b"Transfer-Encoding: chunked;q=1"), ((501,), b"Transfer-Encoding: chunked;"),
            ((501,), b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), ((501,), b"Transfer-Encoding:"),
            ((400,), b"Transfer-Encoding: chunked\r\nContent-Length: 785"),
            ((400,), b"Content-Length: 785\r\nTransfer-Encoding: chunked"),
            ((400,), b"Content-Length: 785\r\ntransfer-encoding: xchunked"),
            ((400,), b"Content-Length: 0\r\nContent-Length: 785"),
            ((400, 501), b"Transfer-Encoding:\r\n xchunked"), ((400,), b"Transfer-Encoding : chunked")):
        status, answers, closed = raw(service, post + header + b"\r\n\r\n" + chunks + smuggled)
        assert status in codes and answers == 1 and closed, (header, status, answers, closed)
    same(raw(service, post.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)[0], 400)
    for header in (b"Transfer-Encoding: chunked", b"transfer-encoding: CHUNKED"):
        same((header, *raw(service, post + header + b"\r\n\r\n" + chunks + smuggled)), (header, 200, 2, False))
    same(service.metrics()["service_examples_accepted_total"], 2)
    same(service.end(), 0)


def takes_what_proxies_and_clients_send(place):
    """A target can be a URL, whose host is checked, and a Content-Type can have parameters."""
    service = place.start("--host", "learn.example").ready()
    port = str(service.port()).encode()
    for status, target in ((200, b"http://127.0.0.1:" + port + b"/healthz"), (200, b"HTTP://localhost/healthz"),
                           (200, b"http://learn.example:80/healthz?x"), (404, b"http://localhost"),
                           (404, b"http://localhost/http://localhost/healthz"), (403, b"http://evil.example/healthz"),
                           (403, b"http://localhost@evil.example/healthz"), (400, b"http:///healthz")):
        same((target, raw(service, b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")[0]), (target, status))
    for host in (b"Host:\r\n evil.example", b"Host:\r\n\tlocalhost", b"Host: localhost\r\n evil.example", b"Host : evil.example"):
        status = raw(service, b"GET /healthz HTTP/1.1\r\n" + host + b"\r\n\r\n")[0]
        assert status in (400, 403), (host, status)
    url = service.url + "/examples"
    for kind, code in (("application/octet-stream; charset=UTF-8", 200), ("Application/Octet-Stream ;q=1", 200),
                       ("application/octet-stream;", 200), ("application/octet-streams", 415), ("application/octet", 415),
                       ("text/plain; application/octet-stream", 415), (";", 415)):
        same((kind, curl(url, "-H", f"Content-Type: {kind}", "--data-binary", "@-", data=example(0)).code), (kind, code))
    same(service.end(), 0)


HALF = b"POST /examples HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n" \
       b"Content-Length: 785000\r\n\r\nX"


def upload_slowly(service, seconds):
    """Examples that come one by one, from 127.0.0.1, over so many seconds."""
    with socket.create_connection(("127.0.0.1", service.port()), timeout=10) as one:
        one.sendall(HALF[:-1].replace(b"785000", b"7850"))
        for i in range(10):
            time.sleep(seconds / 10)
            one.sendall(example(i))
        return one.recv(1000)


def locks_nobody_out(place):
    """64 connections that dribble headers, 64 that dribble bodies: others are answered, and take their time."""
    service = place.start("--request-s", "2").ready()
    with Dribblers(service.port(), host="127.0.0.2"), Dribblers(service.port(), HALF, host="127.0.0.3"):
        uploads = []
        upload = threading.Thread(target=lambda: uploads.append(upload_slowly(service, 1.5)))
        upload.start()
        while upload.is_alive():
            for path in ("/healthz", "/metrics"):
                asks(service.url + path)
            same(curl(service.url + "/examples", *BYTES, "@-", data=example(0)).code, 200)
        assert uploads and uploads[0].startswith(b"HTTP/1.1 200"), uploads
    for begin in (HALF, HALF[:60]):
        assert is_closed_within(service.port(), 6, begin), begin
    with Dribblers(service.port(), HALF):
        time.sleep(0.5)
        start = time.monotonic()
        same(service.end(), 0)
        most = 4 if place.sanitized() else 2
        assert time.monotonic() - start < most, f"ends after {time.monotonic() - start} s"


def makes_do_with_few_descriptors(place):
    service = place.start("--save-s", "1", "--passes", "1000000",
                          limits={resource.RLIMIT_NOFILE: (64, 64)}).ready()
    assert "ulimit -n" in service.said(), service.said()
    curl(service.url + "/examples", *BYTES, "@-", data=examples(0, 64))
    with Dribblers(service.port()), Dribblers(service.port(), HALF):
        until = time.monotonic() + 3
        saved = service.metrics()["service_saves_total"]
        while time.monotonic() < until:
            asks(service.url + "/healthz")
            same(curl(service.url + "/predict", *BYTES, "@-", data=image(0)).code, 200)
        values = service.metrics()
        assert values["service_saves_total"] > saved, values["service_saves_total"]
        same(values["service_failed_saves_total"], 0)
    same(service.end(), 0)

    service = place.start("--passes", "0", limits={resource.RLIMIT_NOFILE: (64, 64)}).ready()
    with Dribblers(service.port()):
        # To spin takes a CPU all the time; what there is to do, also late work of the start, ends at some time.
        busy = []
        while not busy or min(busy) > 0.2 and len(busy) < 40:
            before = cpu_seconds(service.process.pid)
            time.sleep(0.5)
            busy.append(cpu_seconds(service.process.pid) - before)
        assert min(busy) <= 0.2, f"at least {min(busy)} s of CPU time in each 0.5 s, for nothing"
    same(service.end(), 0)


def tells_of_a_disk_without_room(place):
    """A save that fails is counted and logged; training and predictions go on, and a later one succeeds."""
    service = place.start("--save-s", "1", "--passes", "1000000",
                          limits={resource.RLIMIT_FSIZE: (4096, resource.RLIM_INFINITY)}).ready()
    curl(service.url + "/examples", *BYTES, "@-", data=examples(0, 64))
    service.wait(lambda m: m["service_failed_saves_total"] >= 1, "a save that fails", 20)
    same(curl(service.url + "/healthz").code, 200)
    same(curl(service.url + "/predict", *BYTES, "@-", data=image(0)).code, 200)
    same([p.name for p in place.state.iterdir()], ["lock"])
    resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    service.wait(lambda m: m["service_saves_total"] >= 1, "room again", 20)
    assert "saving: " in service.said(), service.said()
    same(service.end(), 0)


def fails_openly(place):
    service = place.start("--set", "optimizer.lr=1000000", "--set", "on_nonfinite=stop").ready()
    curl(service.url + "/examples", *BYTES, "@-", data=examples(0, 100))
    service.wait(lambda m: m["service_ready"] == 0, "training fails")
    answer = curl(service.url + "/healthz")
    same(answer.code, 503)
    assert "finite" in answer.json()["error"], answer.body
    answer = curl(service.url + "/examples", *BYTES, "@-", data=examples(100, 1))
    same(answer.code, 503)
    assert "finite" in answer.json()["error"], answer.body
    assert curl(service.url + "/predict", *BYTES, "@-", data=image(0)).code in (200, 503)

    same(place.start().end(), 1)  # the state is in use
    said = place.services[-1].said()
    assert "another process uses it" in said, said
    options = ["--state", str(place.folder / "other"), "--port", str(service.port())]
    done = subprocess.run([place.program, *options, str(place.config)], stderr=subprocess.PIPE,
                          check=False)
    same(done.returncode, 1)
    assert b"is the port taken" in done.stderr, done.stderr
    assert service.end() != 0

    place.state = place.folder / "fresh"
    for options, status, message in (
            (["--set", "optimizer.lr=x"], 1, "optimizer.lr"),
            (["--classes", "7"], 1, "7 are needed"),
            (["--queue", "0"], 64, "--queue 0: expected 1 to"),
            (["--address", "nowhere"], 1, "--address nowhere"),
            (["--body", "1024", "--shape", "3x100x100"], 64, "--body")):
        service = place.start(*options)
        same((options, service.end()), (options, status))
        assert message in service.said(), service.said()


def readme(place):
    """The commands of README.md, as they are printed there but for the port, each behind the service that it is about."""
    printed = (place.root / "examples" / "service" / "README.md").read_text(encoding="utf-8")
    parts = re.split(r"(?m)^    build/release/examples/service/lockstep-service (.*)$", printed)[1:]
    same(len(parts), 2)
    for options, following in zip(parts[::2], parts[1::2]):
        *options, config = options.split()
        place.config, place.state = place.root / config, place.folder / options[options.index("--state") + 1]
        del options[options.index("--state"):][:2]
        run_printed(place, options, following)


def run_printed(place, options, printed):
    service = place.start(*options).ready()
    commands = [line[4:] for line in printed.splitlines() if re.match(r"    (curl|head|\{|printf) ",
                                                                      line)]
    assert sum("curl " in command for command in commands) >= 2, commands
    script = "set -e\n" + "\n".join(commands).replace(":8080", f":{service.port()}")
    script = script.replace("curl ", "curl -sS --fail-with-body ")
    done = subprocess.run(["sh", "-c", script], cwd=place.folder, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, done.stdout.decode() + script
    same(service.end(), 0)


def main():
    program, root, story, *shim = sys.argv[1:]
    if not shutil.which("curl"):
        print("skipped: no curl")
        sys.exit(77)
    with Place(program, root, *(shim or [None])) as place:
        globals()[story](place)


if __name__ == "__main__":
    main()
