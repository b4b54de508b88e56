# SPDX-License-Identifier: MIT
"""A TCP port for a program that a test starts."""
import random
import socket


def least_of_connections():
    """Returns the first port that the kernel may give to a connection."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as f:
            return max(int(f.read().split()[0]), 2048)
    except OSError:
        return 32768


def free_port():
    """Returns a port of 127.0.0.1 that nobody uses. It is none that the kernel gives to connections: such a port could
    become that of a connection, even of one to itself, before the program listens."""
    draw, end = random.SystemRandom(), least_of_connections()
    while True:
        port = draw.randrange(max(1024, end - 20000), end)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
