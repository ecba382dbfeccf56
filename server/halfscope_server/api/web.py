"""The web app's files: where they are, and the one page that is served when they are not there.

Owns the search for a built web app. Must not import the store. Invariant: what is served is either a complete build or
a page that says how to make one; the API works in both cases.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import halfscope_server

MISSING_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>halfscope</title></head>
<body>
<h1>halfscope is running, its web app is not built</h1>
<p>The API under <code>/api/v1</code> works, and trainings can send. This installation has no built web app: neither
inside the package nor in <code>web/dist</code> of a source checkout.</p> <p>In a source checkout build it with
<code>make web</code> (or <code>npm ci &amp;&amp; npm run build</code> in <code>web/</code>, Node 20.19 or newer) and
restart <code>halfscope serve</code>. A wheel from <code>pip install 'halfscope[server]'</code> brings it along.</p>
</body> </html>
"""


def find(configured: Path | None) -> Path | None:
    """The folder of a complete build: the configured one, the packaged one, or web/dist beside an editable install.

    Raises:
        ValueError: a folder was configured and holds no web app.
    """
    if configured is not None:
        if not (configured / "index.html").is_file():
            raise ValueError(f"HALFSCOPE_WEB_DIR is {configured}, which holds no index.html; expected a built web app")
        return configured
    package = Path(str(resources.files(halfscope_server)))
    for candidate in (package / "static", package.parent.parent / "web" / "dist"):
        if (candidate / "index.html").is_file():
            return candidate
    return None


def build_id(configured: Path | None) -> str:
    """Twelve characters that change with every build, or empty without one: an open page asks whether it is stale."""
    directory = find(configured)
    return "" if directory is None else hashlib.sha256((directory / "index.html").read_bytes()).hexdigest()[:12]


@contextmanager
def prepared(configured: Path | None, root_path: str) -> Iterator[Path]:
    """A folder to serve: the build as it is, a copy whose start page knows the root path, or the page that says how to
    build.

    Only index.html names absolute addresses; scripts and styles find each other relative to themselves.
    """
    found = find(configured)
    if found is not None and not root_path:
        yield found
        return
    with tempfile.TemporaryDirectory(prefix="halfscope-web-") as folder:
        copy = Path(folder) / "web"
        if found is None:
            copy.mkdir()
            (copy / "index.html").write_text(MISSING_PAGE, encoding="utf-8")
        else:
            shutil.copytree(found, copy)
            page = (copy / "index.html").read_text(encoding="utf-8")
            for attribute in ("src", "href"):
                page = page.replace(f'{attribute}="/', f'{attribute}="{root_path}/')
            (copy / "index.html").write_text(page, encoding="utf-8")
        yield copy
