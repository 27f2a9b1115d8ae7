"""Telling people what has happened: `notify(workspace, Notice(...))`, by log, Slack webhook and e-mail.

What belongs here: the channels, and that none of them ever fails the run that it reports on. What does not: when to
tell (`pipelines`, and whoever decides something), what happened.
"""

from ops.alerts.channel import Delivery
from ops.alerts.notice import Notice
from ops.alerts.notify import notify

__all__ = ["Delivery", "Notice", "notify"]
