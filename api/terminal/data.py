"""Prepared data, and estimates of it, on a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console

from ...datasets.pipelines.mixture import MANY_EPOCHS
from .console import columns, heading

UNCHECKED = (
    "published for windows by likeness (7B, 15B tokens), unchecked here: retrieval +18.09 %, "
    "summaries +21.23 %, reading +21.27 %, code +3.81 %"
)


def print_data(out: Console, document: dict[str, Any]) -> None:
    """Print what is prepared, stage by stage."""
    tokenizer = document["tokenizer"]
    share = "" if document["share"] == 1 else f", a sample of {document['share']:.2%}"
    out.print(f"prepared data of recipe {document['recipe_hash']}{share}")
    seconds = document["seconds"]
    rows = [{**stage, **stage["total"], "seconds": seconds[stage["name"]]["all"]}
            for stage in document["stages"]]  # fmt: skip
    _print_stages(out, rows)
    _print_reasons(out, document["stages"])
    _print_facts(out, document["stages"])
    padding = tokenizer["padding"] / max(1, tokenizer["tokens"])
    out.print(
        f"{tokenizer['tokens']:,} tokens in shards, below {tokenizer['vocab']}, of which "
        f"{padding:.1%} pad; text ends with {tokenizer['end']}"
    )
    _print_lengths(out, document["lengths"])


def print_estimate(out: Console, document: dict[str, Any]) -> None:
    """Print what preparing data would come to."""
    sampled = document["sampled"]
    out.print(
        f"estimate for recipe {document['recipe_hash']} from {sampled['documents']:,} documents, "
        f"{document['share']:.2%} of the texts; all of them were read"
    )
    _print_stages(out, document["stages"])
    out.print(f"{document['seconds']:.1f} s in all, on as many processes as now")
    _print_mixture(out, document["mixture"])
    _print_lengths(out, document["lengths"])


def _print_stages(out: Console, rows: Iterable[dict[str, Any]]) -> None:
    heading(out, "left by stage")
    names = ("documents", "tokens", "bytes", "of tokens", "seconds")
    table = columns("stage", *names, right=names)
    for row in rows:
        given, left = row["in"], row["out"]
        share = left["tokens"] / given["tokens"] if given["tokens"] else 1.0
        amounts = [f"{left[unit]:,}" for unit in ("documents", "tokens", "bytes")]
        table.add_row(row["name"], *amounts, f"{share:.1%}", f"{row['seconds']:.2f}")
    out.print(table)


def _print_reasons(out: Console, stages: list[dict[str, Any]]) -> None:
    found = [
        (stage["name"], f"{what}: {reason}", entry)
        for stage in stages
        for what in ("dropped", "cut")
        for reason, entry in sorted(stage["total"][what].items())
    ]
    if not found:
        return
    heading(out, "dropped and cut")
    table = columns("stage", "what", "texts", "tokens", right=("texts", "tokens"))
    for name, what, entry in found:
        table.add_row(name, what, f"{entry['texts']:,}", f"{entry['tokens']:,}")
    out.print(table)


def _print_facts(out: Console, stages: list[dict[str, Any]]) -> None:
    for stage in stages:
        facts = stage["facts"]
        if stage["name"] == "mixture":
            _print_mixture(out, facts)
        elif stage["name"] == "windows":
            out.print(
                f"windows: {facts['windows']:,} of {facts['size']} tokens by {facts['order']}, "
                f"{facts['pieces_a_window']:.2f} texts each, {facts['cuts']:,} cuts, "
                f"{facts['waste']:.2%} waste"
            )
            out.print(UNCHECKED)


def _print_mixture(out: Console, facts: dict[str, Any]) -> None:
    if not facts:
        return
    heading(out, "mixture")
    numbers = ("available", "tokens", "share", "weight", "epochs")
    table = columns("domain", *numbers, right=numbers)
    for name, row in facts.items():
        table.add_row(
            name,
            f"{row['available']:,}",
            f"{row['tokens']:,}",
            f"{row['share']:.2%}",
            f"{row['weight']:.2%}",
            f"{row['epochs']:.2f}",
        )
    out.print(table)
    for name, row in facts.items():
        if row["epochs"] > MANY_EPOCHS:
            out.print(
                f"warning: {name} is read {row['epochs']:.1f} times; beyond {MANY_EPOCHS:g} epochs "
                "repeated tokens are worth little"
            )


def _print_lengths(out: Console, lengths: dict[str, list[list[int]]]) -> None:
    heading(out, "lengths by domain")
    table = columns(
        "domain", "up to", "documents", "tokens", right=("up to", "documents", "tokens")
    )
    for domain, rows in lengths.items():
        for most, count, tokens in rows:
            table.add_row(domain, f"{most:,}", f"{count:,}", f"{tokens:,}")
    out.print(table)
