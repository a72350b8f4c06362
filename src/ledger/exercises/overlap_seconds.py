"""Chapter 9: one batch against two half batches that hide each other's communication."""

import heapq

from ledger.exercises.base import Case, Exercise, Mistake, Mutant


def make(rng, dtype, stages, compute=(1.0, 9.0), communication=(1.0, 9.0)):
    """Stage times between the ends of each range."""
    ends = {"compute": compute, "communication": communication}
    return {name: [float(x) for x in rng.uniform(*range_, stages)] for name, range_ in ends.items()}


def make_compute_bound(rng, dtype, stages):
    return make(rng, dtype, stages, compute=(20.0, 30.0))


def make_communication_bound(rng, dtype, stages):
    return make(rng, dtype, stages, communication=(20.0, 30.0))


def given(compute, communication):
    """A maker of exactly these stages."""
    return lambda rng, dtype: {"compute": list(compute), "communication": list(communication)}


def make_layers(rng, dtype, layers):
    """Attention and dispatch, experts and combine, the same in each layer; seconds."""
    attention, dispatch, experts, combine = (float(x) for x in rng.uniform(2e-5, 2e-4, 4))
    return given([attention, experts] * layers, [dispatch, combine] * layers)(rng, dtype)


def oracle(compute, communication):
    """An event at a time: whoever may start is started as soon as its lane is free, in the order A1 B1 A2 B2."""
    return simulate(compute, communication, 1), simulate(compute, communication, 2)


def simulate(compute, communication, batches):
    """Run a queue of jobs in each lane; a job starts when it heads its lane and its own batch's job before is over."""
    stages = range(len(compute))
    queues = [[(stage, batch) for stage in stages for batch in range(batches)] for _ in range(2)]
    times = compute, communication
    done, busy, events, clock = set(), [False, False], [], 0.0
    while True:
        for lane in range(2):
            if busy[lane] or not queues[lane]:
                continue
            stage, batch = queues[lane][0]
            before = (0, stage, batch) if lane else (1, stage - 1, batch)
            if before in done or (lane == 0 and stage == 0):
                queues[lane].pop(0)
                busy[lane] = True
                heapq.heappush(events, (clock + times[lane][stage] / batches, lane, stage, batch))
        if not events:
            return clock
        clock, lane, stage, batch = heapq.heappop(events)
        busy[lane] = False
        done.add((lane, stage, batch))


def nothing_hidden(compute, communication):
    one = float(sum(compute) + sum(communication))
    return one, one


def all_hidden(compute, communication):
    one = float(sum(compute) + sum(communication))
    return one, float(max(sum(compute), sum(communication)))


def longer_of_each_stage(compute, communication):
    one = float(sum(compute) + sum(communication))
    return one, float(sum(max(pair) for pair in zip(compute, communication, strict=True)))


def layer_after_layer(compute, communication):
    one = float(sum(compute) + sum(communication))
    pairs = zip(compute, communication, strict=True)
    return one, float(sum((c + m + max(c, m)) / 2 for c, m in pairs))


def batch_after_batch(compute, communication):
    one = float(sum(compute) + sum(communication))
    free, ready = [0.0, 0.0], [0.0, 0.0]
    for half in (0, 1):
        for times in zip(compute, communication, strict=True):
            for lane in (0, 1):
                end = max(free[lane], ready[half]) + times[lane] / 2
                free[lane] = ready[half] = end
    return one, max(ready)


def next_stage_does_not_wait(compute, communication):
    one = float(sum(compute) + sum(communication))
    free, ready = [0.0, 0.0], [0.0, 0.0]
    for times in zip(compute, communication, strict=True):
        for half in (0, 1):
            for lane in (0, 1):
                end = max(free[lane], ready[half] if lane else 0.0) + times[lane] / 2
                free[lane] = ready[half] = end
    return one, max(ready)


def both_communicate_at_once(compute, communication):
    one = float(sum(compute) + sum(communication))
    free, ready = [0.0, 0.0], [0.0, 0.0]
    for times in zip(compute, communication, strict=True):
        for half in (0, 1):
            for lane in (0, 1):
                end = max(0.0 if lane else free[lane], ready[half]) + times[lane] / 2
                free[lane] = ready[half] = end
    return one, max(ready)


def both_compute_at_once(compute, communication):
    one = float(sum(compute) + sum(communication))
    free, ready = [0.0, 0.0], [0.0, 0.0]
    for times in zip(compute, communication, strict=True):
        for half in (0, 1):
            for lane in (0, 1):
                end = max(free[lane] if lane else 0.0, ready[half]) + times[lane] / 2
                free[lane] = ready[half] = end
    return one, max(ready)


def nothing_shared(compute, communication):
    one = float(sum(compute) + sum(communication))
    return one, one / 2


def whole_batches(compute, communication):
    one = float(sum(compute) + sum(communication))
    free, ready = [0.0, 0.0], [0.0, 0.0]
    for times in zip(compute, communication, strict=True):
        for half in (0, 1):
            for lane in (0, 1):
                end = max(free[lane], ready[half]) + times[lane]
                free[lane] = ready[half] = end
    return one, max(ready)


def computing_alone_halved(compute, communication):
    one = float(sum(compute) + sum(communication))
    free, ready = [0.0, 0.0], [0.0, 0.0]
    for times in zip(compute, communication, strict=True):
        for half in (0, 1):
            for lane in (0, 1):
                end = max(free[lane], ready[half]) + (times[lane] if lane else times[lane] / 2)
                free[lane] = ready[half] = end
    return one, max(ready)


def last_communication_forgotten(compute, communication):
    one = float(sum(compute) + sum(communication))
    sent = [*communication[:-1], *[0.0 for _ in communication[-1:]]]
    free, ready = [0.0, 0.0], [0.0, 0.0]
    for times in zip(compute, sent, strict=True):
        for half in (0, 1):
            for lane in (0, 1):
                end = max(free[lane], ready[half]) + times[lane] / 2
                free[lane] = ready[half] = end
    return one, max(ready)


def one_batch_overlapped_too(compute, communication):
    free, ready = [0.0, 0.0], [0.0, 0.0]
    for times in zip(compute, communication, strict=True):
        for half in (0, 1):
            for lane in (0, 1):
                end = max(free[lane], ready[half]) + times[lane] / 2
                free[lane] = ready[half] = end
    return float(max(sum(compute), sum(communication))), max(ready)


def swapped(compute, communication):
    one = float(sum(compute) + sum(communication))
    free, ready = [0.0, 0.0], [0.0, 0.0]
    for times in zip(compute, communication, strict=True):
        for half in (0, 1):
            for lane in (0, 1):
                end = max(free[lane], ready[half]) + times[lane] / 2
                free[lane] = ready[half] = end
    return max(ready), one


def ratio(compute, communication):
    one = float(sum(compute) + sum(communication))
    free, ready = [0.0, 0.0], [0.0, 0.0]
    for times in zip(compute, communication, strict=True):
        for half in (0, 1):
            for lane in (0, 1):
                end = max(free[lane], ready[half]) + times[lane] / 2
                free[lane] = ready[half] = end
    return one / max(ready) if one else 1.0


EXERCISE = Exercise(
    id="overlap_seconds",
    chapter=9,
    order=5,
    title="two half batches",
    checks="seconds of one batch, and of two half batches in the order A1 B1 A2 B2",
    points=4,
    difficulty=3,
    minutes=15,
    make=make,
    oracle=oracle,
    returns=("one batch", "two half batches"),
    cases=(
        Case("2 and 2 by hand", make=given([2.0], [2.0])),
        Case("two stages", {"stages": 2}),
        Case("many stages drawn at random", {"stages": 13}),
        Case("compute is the longer, drawn at random", {"stages": 6}, make=make_compute_bound),
        Case("communication is the longer, drawn at random", {"stages": 6}, make=make_communication_bound),
        Case("first one, then the other", make=given([8.0, 1.0, 8.0, 1.0], [1.0, 8.0, 1.0, 8.0])),
        Case("58 layers drawn at random", {"layers": 58}, make=make_layers),
        Case("nothing to send", make=given([3.0, 5.0], [0.0, 0.0])),
        Case("nothing to compute", make=given([0.0, 0.0], [4.0, 6.0])),
        Case("no stages", make=given([], [])),
    ),
    hints=(
        "Draw it: two lanes, and in each of them blocks that may not overlap. A1 computes, then it is sent while B1 "
        "computes. What are the two things that A2 has to wait for before it may start computing?",
        "Keep four clocks: when each lane is free, and when each half batch is ready for its next stage. Go through "
        "the stages, and in each through A and then B. A job starts at the later of two of the clocks, and its end "
        "sets both of them.",
        "Fill the gaps:\n\n"
        "    lane_free = [0.0, 0.0]  # compute, communication\n"
        "    ready = [0.0, 0.0]  # A, B\n"
        "    for times in zip(compute, communication):\n"
        "        for half in ____:\n"
        "            for lane in ____:\n"
        "                end = max(____, ____) + ____\n"
        "                ____ = ____ = end\n"
        "    return ____, max(____)",
    ),
    mistakes=(
        Mistake(
            "nothing hidden",
            "two half batches take as long as one. While B computes, A's tokens travel",
            nothing_hidden,
        ),
        Mistake(
            "everything hidden",
            "this is the longer of all computing and all communication. At both ends one of the lanes is idle, and a "
            "stage may have to wait in between",
            all_hidden,
        ),
        Mistake(
            "the longer of each stage",
            "this takes the longer of computing and communication, stage by stage. Follow the blocks through both "
            "lanes",
            longer_of_each_stage,
        ),
        Mistake(
            "stage after stage",
            "each stage starts when both half batches are through with the one before. A2 may start while B1 is still "
            "on its way",
            layer_after_layer,
        ),
        Mistake(
            "batch after batch",
            "A runs to its end before B. The order is A1 B1 A2 B2",
            batch_after_batch,
        ),
        Mistake(
            "the next stage does not wait",
            "A2 starts computing before A1's tokens are back. It needs them",
            next_stage_does_not_wait,
        ),
        Mistake(
            "both communicate at once",
            "A and B communicate at the same time. There is one network, and each half batch has it to itself",
            both_communicate_at_once,
        ),
        Mistake(
            "both compute at once",
            "A and B compute at the same time. There is one GPU, and each half batch has it to itself",
            both_compute_at_once,
        ),
        Mistake("nothing shared", "this is half the time of one batch, as if A and B had a GPU each", nothing_shared),
        Mistake("whole batches", "each half batch takes as long as a whole one. Its stages cost half", whole_batches),
        Mistake(
            "computing alone halved",
            "each half batch communicates as long as a whole one. It has half the tokens to send as well",
            computing_alone_halved,
        ),
        Mistake(
            "last communication forgotten",
            "the last communication is missing: the layer is over when its tokens are back",
            last_communication_forgotten,
        ),
        Mistake(
            "one batch overlapped too",
            "one batch is overlapped with itself. It has nothing to compute while its own tokens travel: its stages "
            "add up",
            one_batch_overlapped_too,
        ),
        Mistake("results swapped", "the right two times in the wrong order: one batch comes first", swapped),
    ),
    mutants=(
        Mutant(nothing_hidden, "nothing hidden"),
        Mutant(all_hidden, "everything hidden"),
        Mutant(longer_of_each_stage, "the longer of each stage"),
        Mutant(layer_after_layer, "stage after stage"),
        Mutant(batch_after_batch, "batch after batch"),
        Mutant(next_stage_does_not_wait, "the next stage does not wait"),
        Mutant(both_communicate_at_once, "both communicate at once"),
        Mutant(both_compute_at_once, "both compute at once"),
        Mutant(nothing_shared, "nothing shared"),
        Mutant(whole_batches, "whole batches"),
        Mutant(computing_alone_halved, "computing alone halved"),
        Mutant(last_communication_forgotten, "last communication forgotten"),
        Mutant(one_batch_overlapped_too, "one batch overlapped too"),
        Mutant(swapped, "results swapped"),
        Mutant(ratio, "wanted a tuple of 2 parts"),
    ),
)
