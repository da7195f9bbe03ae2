"""A published run on its way to a question, with assumptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...datasets.published.names import source_entry, test_entry
from ...datasets.published.runs import PublishedRun
from ...spec.errors import InputError
from ...spec.report.report import Assumption

TEST_WHY = "the test's model_config.yaml in NVIDIA/Megatron-LM (datasets/published)"


@dataclass(slots=True)
class RunDraft:
    """Arguments so far, and what was assumed of them."""

    run: PublishedRun
    arguments: dict[str, Any] = field(default_factory=dict)
    assumed: list[Assumption] = field(default_factory=list)

    @property
    def source(self) -> Mapping[str, Any]:
        """Facts about the run's source."""
        entry = source_entry(self.run)
        if "attention" in self.test:
            entry = {**entry, "attention": self.test["attention"], "why": TEST_WHY}
        return entry

    @property
    def test(self) -> Mapping[str, Any]:
        """Facts about the functional test; empty for other runs."""
        return test_entry(self.run)

    def assume(self, name: str, value: Any, why: str) -> Any:
        """List a value that the source does not print, and return it."""
        self.assumed.append(Assumption(path=name, value=value, why=why))
        return value

    def usual(self, name: str, default: str) -> Any:
        """Take a value usual of the source, and list it as assumed."""
        source = self.source
        why = source.get("why", "nothing is known of the source")
        return self.assume(name, source.get(name, default), f"not printed; {why}")

    def refuse(self, name: str, value: object, allowed: str) -> InputError:
        """The error for a cell that has no meaning here."""
        return InputError(f"{self.run.id}: {name}", value, allowed)
