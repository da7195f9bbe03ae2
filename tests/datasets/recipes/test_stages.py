"""Each stage against a plain count of what it should do, on texts with planted cases."""

from __future__ import annotations

import itertools
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from checks.data_stage_suite import WORDS

from shardwright.datasets.pipelines.personal_data import ALL_KINDS, replaced
from shardwright.datasets.pipelines.rules import Rules, broken_rule
from shardwright.datasets.pipelines.shipped import STAGES
from shardwright.datasets.preparation.prepare import WORK, prepare
from shardwright.datasets.preparation.result import read_data
from shardwright.datasets.recipes.recipe import recipe_of
from shardwright.datasets.recipes.text_document import TextDocument, text_digest
from shardwright.datasets.text_mining.families import jaccard, keepers
from shardwright.datasets.text_mining.imports import imports_first, named_files
from shardwright.datasets.text_mining.pieces import pieces
from shardwright.datasets.text_mining.shingles import shingles

Record = dict[str, Any]


def sentence(draw: random.Random, words: int = 9) -> str:
    return " ".join(draw.choice(WORDS) + str(draw.randint(0, 400)) for _ in range(words)) + ".\n"


def run(folder: Path, records: list[Record], **keys: Any) -> tuple[Path, dict[str, Any]]:
    """Prepared data of records with id, text and domain, and its document."""
    domains = sorted({record["domain"] for record in records})
    for domain in domains:
        mine = [record for record in records if record["domain"] == domain]
        (folder / f"{domain}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in mine))
    sources = [{"name": d, "domain": d, "path": f"{d}.jsonl"} for d in domains]
    prepare(recipe_of({"sources": sources, **keys}, "r", STAGES), folder, folder / "out", STAGES)
    return folder / "out", read_data(folder / "out")


def texts_of(out: Path) -> list[str]:
    import numpy as np

    tokens = np.concatenate([np.load(path) for path in sorted(out.glob("tokens-*.npy"))])
    parts = np.split(tokens, np.flatnonzero(tokens == 256))
    return [bytes(p[p < 256].astype(np.uint8)).decode() for p in parts if (p < 256).any()]


def plain(text: str, domain: str = "web", name: str = "") -> TextDocument:
    return TextDocument(
        source="s", domain=domain, name=name, text=text, digest=text_digest(text), tokens=len(text)
    )


def test_near_duplicates_are_the_pairs_of_a_brute_force_and_the_longest_stays(
    tmp_path: Path,
) -> None:
    pytest.importorskip("datasketch", reason="no datasketch here: the extra data brings it")
    draw = random.Random(0)
    texts = ["".join(sentence(draw) for _ in range(20)) for _ in range(40)]
    for base in texts[:20]:
        lines = base.splitlines(keepends=True)
        texts.append("".join(lines) + sentence(draw, 3))
        texts.append("".join(line for line in lines if draw.random() > 0.08))
    records = [{"id": str(n), "text": t, "domain": f"d{n % 3}"} for n, t in enumerate(texts)]
    out, document = run(tmp_path, records, stages=["near_duplicates"])
    sets = [shingles(text, 5) for text in texts]
    pairs = {
        pair
        for pair in itertools.combinations(range(len(texts)), 2)
        if jaccard(sets[pair[0]], sets[pair[1]]) >= 0.7
    }
    (facts,) = [s["facts"] for s in document["stages"] if s["name"] == "near_duplicates"]
    assert facts["pairs"] == len(pairs) > 30
    kept = texts_of(out)
    left = set(kept)
    for one, other in pairs:
        longer, shorter = sorted((texts[one], texts[other]), key=len, reverse=True)
        assert longer in left or shorter not in left or len(longer) == len(shorter)
    gone = document["stages"][1]["total"]["dropped"]["near copy of a longer text"]["texts"]
    assert len(kept) == len(texts) - gone


def test_families_do_not_glue_the_ends_of_a_chain() -> None:
    import numpy as np

    chain = np.array([[0, 1], [1, 2], [2, 3], [3, 4]])
    lengths = np.array([10, 9, 8, 7, 6])
    assert keepers(chain, lengths, [b"a", b"b", b"c", b"d", b"e"]).tolist() == [0, 0, 2, 2, 4]
    assert keepers(chain[::-1, ::-1], lengths, [b""] * 5).tolist() == [0, 0, 2, 2, 4]


def test_boilerplate_in_twenty_forms_is_cut_and_little_else(tmp_path: Path) -> None:
    draw = random.Random(1)
    base = "This page and all of its content is protected by law"
    forms = [
        f"{base.upper() if n % 2 else base}{'!' if n % 3 else ','} {1990 + n}{' ' * (n % 4)}.\n"
        for n in range(20)
    ]
    records = []
    for number in range(200):
        lines = [sentence(draw) for _ in range(12)]
        for _ in range(5):
            lines.insert(draw.randint(0, len(lines)), draw.choice(forms))
        records.append({"id": str(number), "text": "".join(lines), "domain": "web"})
    records += [{**r, "domain": "code", "id": f"c{r['id']}"} for r in records[:20]]
    out, document = run(tmp_path, records, stages=["repeated_sentences"])
    left = texts_of(out)
    planted = {piece for form in forms for piece in pieces(form) if len(piece) > 30}
    cut = document["stages"][1]["domains"]
    gone = cut["web"]["cut"]["sentences that many documents have"]["bytes"]
    assert gone == sum(len(p) for r in records[:200] for p in pieces(r["text"]) if p in planted)
    assert cut["code"]["cut"] == {}
    assert sum(any(piece in text for piece in planted) for text in left) == 20


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("too few words here", "too few words"),
        ("-=+*/ " * 40 + "word " * 30, "too many symbols"),
        ("one and the same line of words\n" * 30, "repeated lines"),
        ("again and again it goes on like this " * 20, "repeated n-grams"),
        (" ".join(f"w{n}" for n in range(50)) + " Forbidden.", "a word of the list"),
        (" ".join(f"w{n}" for n in range(50)) + " bad.example", "an address of the list"),
        (" ".join(f"w{n}" for n in range(50)) + " forbiddenly", ""),
    ],
)
def test_each_rule_is_named(text: str, why: str) -> None:
    value = Rules(words=("forbidden",), addresses=("bad.example",))
    assert broken_rule(value, plain(text)) == why


def test_personal_data_is_replaced_and_look_alikes_stay() -> None:
    text = (
        "Write to jane.doe+x@mail.example.org or call +49 30 1234 5678. "
        "Card 4111 1111 1111 1111, account DE89 3704 0044 0532 0130 00, host 93.184.216.34."
    )
    found = replaced(text, ALL_KINDS)
    assert found == ("Write to <email> or call <phone>. Card <card>, account <iban>, host <ip>.")
    stays = (
        "Version 1.2.3.4567, 4111 1111 1111 1112 items, 10.0.0.1, 2020-01-02, x@y, 3.14159265358"
    )
    assert replaced(stays, ("email", "ip", "card", "iban")) == stays


def test_contamination_drops_what_holds_a_benchmark(tmp_path: Path) -> None:
    draw = random.Random(2)
    bench = [sentence(draw, 20).strip() for _ in range(5)]
    (tmp_path / "bench.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in bench))
    records = [
        {"id": str(n), "text": sentence(draw, 30) + (bench[n % 5] if n % 4 == 0 else ""),
         "domain": "web"}
        for n in range(40)
    ]  # fmt: skip
    out, document = run(
        tmp_path, records, stages=[{"contamination": {"benchmarks": ["bench.jsonl"]}}]
    )
    assert sorted(texts_of(out)) == sorted(r["text"] for r in records if int(r["id"]) % 4)
    assert document["stages"][1]["total"]["dropped"]["text of a benchmark"]["texts"] == 10


def test_quality_keeps_what_is_like_the_seeds(tmp_path: Path) -> None:
    pytest.importorskip("scipy", reason="no scipy here: the extra data brings it")
    draw = random.Random(3)
    good = [f"theorem{n} lemma{n}" for n in range(60)]
    bad = [f"offer{n} cheap{n}" for n in range(60)]

    def text(words: list[str]) -> str:
        return " ".join(draw.choice(words) for _ in range(60))

    seeds = [json.dumps({"text": text(good)}) + "\n" for _ in range(20)]
    (tmp_path / "good.jsonl").write_text("".join(seeds))
    records = [
        {"id": str(n), "text": text(good if n % 4 == 0 else bad), "domain": "web"}
        for n in range(120)
    ]
    out, _ = run(tmp_path, records, stages=[{"quality": {"good": ["good.jsonl"], "keep": 0.25}}])
    assert sorted(texts_of(out)) == sorted(r["text"] for r in records if int(r["id"]) % 4 == 0)


def test_mixture_meets_its_weights_and_counts_epochs(tmp_path: Path) -> None:
    draw = random.Random(4)
    sizes = {"a": 300, "b": 80, "c": 200}
    records = [
        {"id": str(n), "text": sentence(draw, draw.randint(2, 12)), "domain": domain}
        for domain, count in sizes.items()
        for n in range(count)
    ]
    weights = {"a": 0.25, "b": 0.75, "c": 0.0}
    _, document = run(tmp_path, records, mixture={"weights": weights, "epochs": 5})
    (facts,) = [s["facts"] for s in document["stages"] if s["name"] == "mixture"]
    for name, row in facts.items():
        assert abs(row["share"] - weights[name]) <= 0.01
        assert row["epochs"] == pytest.approx(row["tokens"] / row["available"])
    assert facts["b"]["epochs"] == pytest.approx(5, rel=0.01)
    assert document["stages"][-1]["domains"].keys() == {"a", "b"}


def test_repositories_come_in_the_order_of_imports(tmp_path: Path) -> None:
    draw = random.Random(5)
    records, wanted = [], {}
    for repo in range(20):
        files = [f"m{n}" for n in range(8)]
        draw.shuffle(files)
        for place, name in enumerate(files):
            uses = draw.sample(files[:place], min(place, 2))
            body = f"# {name} of {repo}\n" + "".join(f"from . import {use}\n" for use in uses)
            records.append({"id": f"repo{repo}/{name}.py", "text": body, "domain": "code"})
            wanted[repo, name] = uses
    out, _ = run(tmp_path, records, stages=["repository_order"])
    found = texts_of(out)
    assert len(found) == 20
    for text in found:
        heads = [line for line in text.splitlines() if line.startswith("#")]
        repo = int(heads[0].rpartition(" ")[2])
        names = [head.split()[1] for head in heads]
        assert len(names) == 8
        for name in names:
            assert all(names.index(use) < names.index(name) for use in wanted[repo, name])


def test_a_cycle_is_cut_the_same_way_each_time() -> None:
    names = {"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"]}
    assert imports_first(names) == ["a", "c", "d", "b"]
    assert imports_first(dict(reversed(names.items()))) == ["a", "c", "d", "b"]
    assert named_files("x/a.py", "import x.b\nfrom .c import d\n", ["x/b.py", "x/c.py"]) == [
        "x/b.py",
        "x/c.py",
    ]


def test_a_cycle_waits_for_what_it_imports_and_goes_before_what_imports_it() -> None:
    names = {"a": ["c"], "c": ["d", "e"], "d": ["c"], "e": [], "b": ["a"]}
    assert imports_first(names) == ["e", "c", "a", "d", "b"]
    # "a" has the least name and waits for one file alone, but is in no cycle.
    assert imports_first({"a": ["x"], "x": ["y", "z"], "y": ["x"], "z": ["x"]}) == [
        "y", "x", "a", "z",
    ]  # fmt: skip


def test_imports_are_read_as_python_reads_them() -> None:
    files = ["__init__.py", "abc.py", "b.py", "c/__init__.py", "c/d.py"]
    text = '"""Use\n\nimport root.abc\n"""\nimport abc\nfrom root import (\n    b,  # first\n)\n'
    assert named_files("c/d.py", text, files, "root") == ["b.py"]
    assert named_files("b.py", "from root.c import d, e\n", files, "root") == [
        "c/__init__.py",
        "c/d.py",
    ]
    continued = "from .. import abc, \\\n  b\n"
    assert named_files("c/d.py", continued, files, "root") == ["abc.py", "b.py"]
    # A repository whose folder is no package is where absolute names begin.
    assert named_files("b.py", "import abc\n", files[1:], "root") == ["abc.py"]


def test_a_result_leaves_no_work_behind(tmp_path: Path) -> None:
    records = [{"id": "1", "text": "some text", "domain": "web"}]
    out, document = run(tmp_path, records)
    assert not (out / WORK).exists()
    assert sorted(path.name for path in out.iterdir()) == [
        "data.json", "documents.npz", "tokens-00000.npy"
    ]  # fmt: skip
    assert document["files"].keys() == {"documents.npz", "tokens-00000.npy"}


def test_a_text_without_an_end_is_read_in_time() -> None:
    text = "import a\nx = '''" + "\\\\n " * 20_000
    start_s = time.process_time()
    assert named_files("b.py", text, ["a.py", "b.py"]) == ["a.py"]
    assert time.process_time() - start_s < 5.0
