#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Slow clients that send byte by byte, and a client with real requests.

    dribble.py URL SECONDS [PID]

Holds 64 connections that send a byte of a header now and then, and opens another as soon as one is
closed. Meanwhile requests for /healthz and /metrics must be answered. Then a slow connection must
be closed within SECONDS, unless they are 0. The process PID must not have used much CPU meanwhile.
Prints what was otherwise, with exit status 1.
"""
import contextlib
import os
import pathlib
import select
import socket
import sys
import threading
import time
import urllib.parse
import urllib.request


class Dribblers(threading.Thread):
    """`count` connections at a time, each with a request that never becomes whole."""

    def __init__(self, port, begin=b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n", count=64,
                 host="127.0.0.1"):
        super().__init__(daemon=True)
        self.address, self.begin, self.count, self.host = ("127.0.0.1", port), begin, count, host
        self.open, self.closed, self.over = [], 0, threading.Event()
        for _ in range(count):
            self.one_more()

    def one_more(self):
        with contextlib.suppress(OSError):
            one = socket.create_connection(self.address, timeout=5, source_address=(self.host, 0))
            self.open.append(one)
            one.sendall(self.begin)

    def dribble(self, one):
        try:
            if select.select([one], [], [], 0)[0] and not one.recv(1000):
                raise ConnectionResetError
            one.sendall(b"X")
        except OSError:
            self.closed += 1
            one.close()
            self.open.remove(one)

    def run(self):
        while not self.over.wait(0.05):
            for one in list(self.open):
                self.dribble(one)
            while len(self.open) < self.count and not self.over.is_set():
                self.one_more()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()
        for one in self.open:
            one.close()


def asks(url, seconds=10):
    """How long an answer takes; at most `seconds`."""
    start = time.monotonic()
    with urllib.request.urlopen(url, timeout=seconds) as answer:
        answer.read()
        assert answer.status == 200, answer.status
    return time.monotonic() - start


def is_closed_within(port, seconds, begin):
    """Alone, and a byte every fifth of a second: whether the server ends it in that time, and not at once."""
    start = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=5) as one:
        one.sendall(begin)
        while time.monotonic() < start + seconds:
            if select.select([one], [], [], 0.2)[0]:
                with contextlib.suppress(ConnectionResetError):
                    while one.recv(1000):
                        pass
                return time.monotonic() - start > 0.5
            with contextlib.suppress(OSError):
                one.sendall(b"X")
    return False


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    url, seconds = sys.argv[1].rstrip("/"), float(sys.argv[2])
    pid = sys.argv[3] if len(sys.argv) > 3 else None
    before = cpu_seconds(pid) if pid else 0
    port = urllib.parse.urlparse(url).port
    with Dribblers(port):
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            for path in ("/healthz", "/metrics"):
                try:
                    asks(url + path)
                except OSError as error:
                    sys.exit(f"{path} beside 64 that dribble: {error}")
            time.sleep(0.1)
    if seconds and not is_closed_within(port, seconds, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"):
        sys.exit(f"a connection that dribbles is not closed within {seconds} s")
    if pid and cpu_seconds(pid) - before > 1:
        sys.exit(f"{cpu_seconds(pid) - before} s of CPU time, for nothing")


if __name__ == "__main__":
    main()
