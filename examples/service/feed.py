#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sends Fashion-MNIST (or MNIST) to the service, as somebody who labels images might.

    feed.py [--rate N] [--seconds S] [--together N] URL FOLDER

FOLDER has train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz; Debian's package
dataset-fashion-mnist puts them into /usr/share/datasets/fashion-mnist. Without --seconds every image is
sent once, else the whole over and over. Prints how many were accepted, also when the service
goes away meanwhile (exit status 1). A refusal that asks to come again (503) is obeyed.
"""
import argparse
import gzip
import http.client
import pathlib
import sys
import time
import urllib.parse


def read(folder):
    images = gzip.open(folder / "train-images-idx3-ubyte.gz").read()[16:]
    labels = gzip.open(folder / "train-labels-idx1-ubyte.gz").read()[8:]
    size = len(images) // len(labels)
    return [labels[i:i + 1] + images[i * size:(i + 1) * size] for i in range(len(labels))]


def send(connection, body):
    """Whether it was taken; False asks to try again. Raises OSError when it was refused for good."""
    connection.request("POST", "/examples", body, {"Content-Type": "application/octet-stream"})
    answer = connection.getresponse()
    text = answer.read().decode()
    if answer.status == 503 and answer.headers["Retry-After"]:
        time.sleep(float(answer.headers["Retry-After"]))
        return False
    if answer.status != 200:
        raise OSError(f"{answer.status} {text}")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rate", type=float, default=0, help="examples a second; 0: all it takes")
    parser.add_argument("--seconds", type=float, help="how long; else every image once")
    parser.add_argument("--together", type=int, default=64, help="examples of a request")
    parser.add_argument("url")
    parser.add_argument("folder", type=pathlib.Path)
    args = parser.parse_args()
    where = urllib.parse.urlparse(args.url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=60)
    examples = read(args.folder)
    start, accepted, failure = time.monotonic(), 0, None
    while args.seconds is None or time.monotonic() - start < args.seconds:
        first = accepted % len(examples)
        some = examples[first:first + args.together]
        try:
            if send(connection, b"".join(some)):
                accepted += len(some)
        except (OSError, http.client.HTTPException) as error:
            failure = error
            break
        if args.rate:
            time.sleep(max(0.0, start + accepted / args.rate - time.monotonic()))
        if args.seconds is None and accepted == len(examples):
            break
    print(f"{accepted} examples accepted")
    if failure:
        sys.exit(f"feed.py: {failure}")


if __name__ == "__main__":
    main()
