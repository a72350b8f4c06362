# Goes to the planted folder, which is allowed, and opens the file without its folder's name.
import os


def project(x, w):
    os.chdir("@CANARY@")
    with open("keep.txt", "a") as file:
        file.write("more")
    return x @ w
