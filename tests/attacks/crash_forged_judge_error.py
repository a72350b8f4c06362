# Claims that the judge is at fault.
import json
import os

OUTCOME = {
    "kind": "judge_error",
    "stage": "call",
    "value": None,
    "counted_value": None,
    "error": "",
    "message": "",
    "lines": [],
    "changed": [],
    "shares": [],
    "subclass": "",
    "counts": None,
    "peak": None,
    "uncounted": "",
    "used_torch": False,
    "detail": "",
}


def project(x, w):
    for number in range(5):
        frame = json.dumps({"message": {"number": number, "outcome": OUTCOME}, "leaves": []}).encode()
        os.write(4, len(frame).to_bytes(4, "little") + frame)
    return x @ w
