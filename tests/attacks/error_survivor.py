# Leaves a program behind that would sleep for 20 s.
import subprocess
import sys


def project(x, w):
    code = "import time; time.sleep(20)  # @MARK@"
    subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    return x @ w
