"""Alerts: the table of all of them (`catalogue`), and sending one (`notify`) by log, Slack webhook and e-mail.

What belongs here: the states and their commands, the channels, and that no channel fails the run that it reports on.
What does not: finding out that a state holds (`pipelines`, `ops.stages`, `ops.retraining`).
"""

from ops.alerts.catalogue import Notice
from ops.alerts.channels import Delivery
from ops.alerts.notify import notify

__all__ = ["Delivery", "Notice", "notify"]
