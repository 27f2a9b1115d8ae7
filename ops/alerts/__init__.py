"""Alerts: the catalogue of all alerts (`catalogue`), and sending them (`notify`) by log, Slack webhook and e-mail.

What belongs here: the states and their commands, and the channels, none of which fails the run that it reports on. What
does not: detecting that a state holds (`pipelines`, `ops.stages`, `ops.retraining`).
"""

from ops.alerts.catalogue import Notice
from ops.alerts.channels import Delivery
from ops.alerts.notify import notify

__all__ = ["Delivery", "Notice", "notify"]
