# Files by way of a library in C.
import sqlite3


def project(x, w):
    sqlite3.connect("@CANARY@/@MARK@").execute("create table t (x)")
    return x @ w
