"""Bodies of every POST route, with something hostile at a random place of a real one.

Places are at any depth: sizes, words, lists, whole objects, and keys that nobody asked for.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator
from typing import Any

from service import hostile, request_bodies

HUGE = ("1e10", "10000000000", "1e12", "1e308", "-1e308", "9223372036854775808",
        "18446744073709551616", "-9223372036854775809", "9" * 400, "-1", "0", "1e-320")  # fmt: skip
NOT_FINITE = ("1e999", "-1e999", "NaN", "Infinity", "-Infinity", "1e" + "9" * 30)
WRONG = ("null", "true", '"4"', '""', "[]", "{}", "[[]]", '{"": {}}', "0.5", "-0.0", "4.000001")
TEXTS = ('"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"' + "x" * 100_000 + '"', '"NaN"',
         '"1e999"', '"../../etc/passwd"', '"' + "a," * 20_000 + '"')  # fmt: skip
DEEP = tuple(
    opened * depth + inner + closed * depth
    for depth in (50, 900, 20_000)
    for opened, inner, closed in (("[", "", "]"), ('{"a":', "1", "}"))
)
KINDS = (NOT_FINITE, NOT_FINITE, HUGE, HUGE, WRONG, TEXTS, DEEP)
RAW = re.compile(r'"@raw (\d+)@"')
AGAIN = re.compile(r'"@again (.*?)@"')
CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300,
    "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "tie_word_embeddings": False,
}  # fmt: skip
CLUSTER: dict[str, Any] = {
    "nodes": 1, "devices_per_node": 2, "device": "H100", "intra_node_bandwidth_gb_per_s": 400.0,
}  # fmt: skip


def bases() -> list[tuple[hostile.Route, dict[str, Any]]]:
    """Every POST route with its example, and questions by a config, a cluster's figures, a plan."""
    posts = {route.path: route for route in hostile.routes() if route.is_post}
    found = [(route, json.loads(route.body)) for route in posts.values()]
    plan = json.loads(posts["/v1/what-ifs"].body)["plan"]
    question = {**request_bodies.QUESTION, "cluster": CLUSTER, "deadline_s": 1.0}
    strategy = {"strategy": {"tp": 1, "dp": 2, "micro_batch": 1}}
    more = {
        "/v1/plans": [question, {**question, "model": CONFIG}],
        "/v1/simulations": [{**question, **strategy}, {**question, "model": CONFIG, **strategy},
                            {"plan": plan}],
        "/v1/runs": [{"plan": plan, "steps": 2}],
    }  # fmt: skip
    for path, documents in more.items():
        for document in documents:
            fit = {key: value for key, value in document.items() if key != "deadline_s"}
            found.append((posts[path], document if path == "/v1/plans" else fit))
    return found


def hostile_body(document: dict[str, Any], chance: random.Random) -> bytes:
    """A document with one to three hostile values, as JSON or nearly."""
    made = copy.deepcopy(document)
    raw: list[str] = []
    for _ in range(chance.randint(1, 3)):
        text = chance.choice(chance.choice(KINDS))
        raw.append(text)
        place, key = chance.choice(list(_places(made)))
        mark = f"@raw {len(raw) - 1}@"
        if isinstance(place, dict) and chance.random() < 0.2:
            added = f"@again {key}@" if chance.random() < 0.4 else chance.choice(("x", "_note", ""))
            place[added] = mark
        else:
            place[key] = mark
    text = json.dumps(made)
    text = AGAIN.sub(lambda match: f'"{match[1]}"', text)
    return RAW.sub(lambda match: raw[int(match[1])], text).encode()


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    keys = document if isinstance(document, dict) else range(len(document))
    for key in list(keys):
        yield document, key
        if isinstance(document[key], dict | list):
            yield from _places(document[key])


def sample(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """So many requests with hostile bodies: a name, and the bytes."""
    chance = random.Random(seed)
    every = bases()
    for number in range(count):
        route, document = every[number % len(every)]
        body = hostile_body(document, chance)
        lines = (f"POST {route.path} HTTP/1.1", "Host: localhost", "Content-Type: application/json",
                 f"Content-Length: {len(body)}")  # fmt: skip
        yield (
            f"body {number} of seed {seed}: {route.path}",
            "\r\n".join([*lines, "", ""]).encode() + body,
        )
