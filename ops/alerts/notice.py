"""What an alert says."""

from __future__ import annotations

from dataclasses import dataclass

from ops.config import AlertKind


@dataclass(frozen=True)
class Notice:
    """One thing that happened, in words that a person reads on a telephone."""

    kind: AlertKind
    title: str
    """One line: `promotion: version 7 is champion`."""
    text: str = ""
    """What a reader needs to decide whether to act now."""
    link: str = ""
    """Where the details are: a run's page, a file."""
    command: str = ""
    """What to type; of several commands the first."""
    occasion: str = ""
    """What happened, as a key: of one occasion one notice is sent. Empty: every notice is its own occasion."""

    @property
    def heading(self) -> str:
        """The title in one line, with its kind before it."""
        return f"[podium] {self.kind}: {' '.join(self.title.split())}"

    @property
    def body(self) -> str:
        """Text, command and link."""
        command = f"Command: {self.command}" if self.command else ""
        return "\n\n".join(part for part in (self.text.strip(), command, self.link.strip()) if part)
