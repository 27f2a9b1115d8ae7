"""Alerts: the catalogue of all alerts (`catalogue`), and sending them (`notify`) through the channels
of `config/alerts.yaml`, each of which is a URL of Apprise.

What belongs here: the states and their commands, and their delivery, which never fails the run that it reports on. What
does not: detecting that a state holds (`pipelines`, `ops.stages`, `ops.retraining`).
"""

from ops.alerts.catalogue import Notice
from ops.alerts.channels import Delivery
from ops.alerts.notify import notify

__all__ = ["Delivery", "Notice", "notify"]
