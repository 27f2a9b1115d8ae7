"""Hooks of MkDocs: pages from outside docs/, the API reference, and links that work on GitHub and on the site.

A page of docs/ links to other files of the repository by their relative paths, such as `../config/pools/openai.yaml`.
GitHub shows these files. The site gets a page for each file that a page links to: `project/…` for Markdown pages, and
`source/…` for all other files, whose text is shown. A link to a file that does not exist fails the build.
"""

from __future__ import annotations

import ast
import logging
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PROJECT_PAGES = {
    "README.md": "project/read-me.md",  # MkDocs makes a README the index of its folder
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security-policy.md",
    "mlflow/README.md": "project/mlflow.md",
}
"""Markdown files outside docs/ → their pages of the site."""
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^)\s]+)(\))")
FENCE = re.compile(r"(^ *```.*?^ *```[^\n]*$)", re.DOTALL | re.MULTILINE)
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".json": "json", ".csv": "text"}
log = logging.getLogger("mkdocs.hooks.website")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of the API reference into the navigation, below their overview."""
    packages = [{f"ops.{name}": f"api/{name}.md"} for name in packages_of_ops()]
    for section in (section for entry in config.nav or [] if isinstance(entry, dict) for section in entry.values()):
        for entry in section if isinstance(section, list) else []:
            if isinstance(entry, dict) and entry.get("API") == "api/index.md":
                entry["API"] = ["api/index.md", *packages]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the stylesheet, the pages from outside docs/, and the API reference."""
    for name in ("website.css", "favicon.svg"):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / "website" / name)))
    for path, uri in PROJECT_PAGES.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        files.append(File.generated(config, uri, content=text))
    for uri, text in api_pages().items():
        files.append(File.generated(config, uri, content=text))
    for file in list(files.documentation_pages()):
        for path in sorted(linked_sources(file)):
            if files.get_file_from_path(source_uri(path)) is None:
                page = File.generated(config, source_uri(path), content=source_page(path))
                page.inclusion = InclusionLevel.NOT_IN_NAV
                files.append(page)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace links that leave docs/ by links to the pages that the site has for them."""
    here = repository_path(page.file.src_uri)
    if here is None:
        return markdown

    def replaced(found: re.Match[str]) -> str:
        target = resolved(here, found[2])
        if target is None:
            return found[0]
        path, anchor = target
        if not (ROOT / path).exists():
            log.warning("%s links to %s, which is neither a file nor a folder of the repository", here, path)
            return found[0]
        uri = os.path.relpath(site_uri(path), PurePosixPath(page.file.src_uri).parent)
        return f"{found[1]}{uri}{anchor}{found[3]}"

    return outside_of_code(markdown, lambda text: LINK.sub(replaced, text))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    r"""Show `\|` in the code of a table's cell as GitHub does, which needs the backslash there."""
    return re.sub(r"<td[^>]*>.*?</td>", lambda cell: cell[0].replace("\\|", "|"), html, flags=re.DOTALL)


def outside_of_code(markdown: str, change: Any) -> str:
    """Apply a change to the parts of a page that are not in fenced code."""
    parts = FENCE.split(markdown)
    return "".join(part if number % 2 else change(part) for number, part in enumerate(parts))


def repository_path(uri: str) -> str | None:
    """Return the file of the repository that a page of the site shows; None for a generated page."""
    if uri.startswith(("api/", "source/")):
        return None
    return next((path for path, page in PROJECT_PAGES.items() if page == uri), f"docs/{uri}")


def resolved(here: str, target: str) -> tuple[str, str] | None:
    """Return a relative link's path from the repository's root and its anchor; None for other links."""
    if re.match(r"[a-z]+:|/|#", target):
        return None
    place, mark, anchor = target.partition("#")
    return os.path.normpath(PurePosixPath(here).parent / place), mark + anchor


def site_uri(path: str) -> str:
    """Return the source of the site's page for a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return PROJECT_PAGES.get(path, source_uri(path))


def source_uri(path: str) -> str:
    return f"source/{path}.md"


def linked_sources(file: File) -> set[str]:
    """Return the files outside docs/ that a page links to and that need a page of their own."""
    here = repository_path(file.src_uri)
    found: set[str] = set()

    def note(found_link: re.Match[str]) -> str:
        target = resolved(here or "", found_link[2])
        if target and site_uri(target[0]) == source_uri(target[0]) and (ROOT / target[0]).exists():
            found.add(target[0])
        return found_link[0]

    if here is not None:
        outside_of_code(file.content_string, lambda text: LINK.sub(note, text))
    return found


def source_page(path: str) -> str:
    """Return a page that shows a file's text, or the names of a folder's files."""
    head = f"---\ntitle: {path}\nsearch: {{exclude: true}}\n---\n# {path}\n\n"
    if (ROOT / path).is_dir():
        names = sorted(file.name for file in (ROOT / path).iterdir() if not file.name.startswith((".", "__")))
        listed = "\n".join(f"- `{name}`" for name in names)
        return f"{head}The folder `{path}` of the repository has these files.\n\n{listed}\n"
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    language = LANGUAGES.get(PurePosixPath(path).suffix, "text")
    return f"{head}This is the file `{path}` of the repository.\n\n````{language}\n{text.rstrip()}\n````\n"


def api_pages() -> dict[str, str]:
    """Return the pages of the API reference: an overview, and one page for each package of `ops`."""
    rows, pages = [], {}
    for name in packages_of_ops():
        text = (ROOT / "ops" / name / "__init__.py").read_text(encoding="utf-8")
        docstring = ast.get_docstring(ast.parse(text)) or ""
        rows.append(f"| [`ops.{name}`]({name}.md) | {' '.join(docstring.partition(chr(10) * 2)[0].split())} |")
        head = f"---\ntitle: ops.{name}\nsearch: {{boost: 0.5}}\n---"
        pages[f"api/{name}.md"] = f"{head}\n# `ops.{name}`\n\n::: ops.{name}\n"
    table = "\n".join(rows)
    head = "| package | what it is for |\n| --- | --- |"
    pages["api/index.md"] = f"---\ntitle: Overview of the API\n---\n{API_INTRODUCTION}\n\n{head}\n{table}\n"
    return pages


def packages_of_ops() -> list[str]:
    return [init.parent.name for init in sorted((ROOT / "ops").glob("*/__init__.py"))]


API_INTRODUCTION = """\
# API

This part is for people who change Podium or who call it from Python. It is generated from the docstrings of the package
`ops`, which holds everything that Podium computes. Names that begin with an underscore are private and are left out. To
add a benchmark, a grader, a baseline or a provider, start with [Add your own parts](../extend.md), which says which
of these functions you need. The table has a row for each package and says what it is for."""
