"""What is told."""

from __future__ import annotations

from dataclasses import dataclass

from ops.config import AlertKind


@dataclass(frozen=True)
class Notice:
    """One thing that has happened, in words a person reads on a telephone."""

    kind: AlertKind
    title: str
    """One line: `promotion: version 7 is champion`."""
    text: str = ""
    """What a reader needs to decide whether to get up."""
    link: str = ""
    """Where more stands: a run's page, a file."""

    @property
    def heading(self) -> str:
        """The title in one line, with its kind before it."""
        return f"[podium] {self.kind}: {' '.join(self.title.split())}"

    @property
    def body(self) -> str:
        """Text and link."""
        return "\n\n".join(part for part in (self.text.strip(), self.link.strip()) if part)
