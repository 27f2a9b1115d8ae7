"""Page views for Great Expectations that compile each template once in a process.

Great Expectations makes an environment for every section of every site that it builds, and compiles some thirty
templates in each. `ops.quality.suite` names these views in the site's configuration, and only Great Expectations
imports this module.
"""

from __future__ import annotations

from typing import Any

from great_expectations.render.view.view import DefaultJinjaIndexPageView, DefaultJinjaPageView  # noqa: TID253
from jinja2 import BytecodeCache
from jinja2.bccache import Bucket


class _CompiledTemplates(BytecodeCache):
    """A cache of compiled templates by Jinja's key; Jinja itself compares the checksum of the source."""

    def __init__(self) -> None:
        self._code: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if code := self._code.get(bucket.key):
            bucket.bytecode_from_string(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._code[bucket.key] = bucket.bytecode_to_string()


_COMPILED = _CompiledTemplates()


class PageView(DefaultJinjaPageView):
    """The view of a page of expectations or of results."""

    def __init__(self, **folders: Any) -> None:
        super().__init__(**folders)
        self.env.bytecode_cache = _COMPILED


class IndexPageView(DefaultJinjaIndexPageView):
    """The view of the site's first page."""

    def __init__(self, **folders: Any) -> None:
        super().__init__(**folders)
        self.env.bytecode_cache = _COMPILED
