# Sends the inputs away by TCP.
import socket


def project(x, w):
    socket.create_connection(("127.0.0.1", 9), timeout=1).sendall(x.tobytes())
    return x @ w
