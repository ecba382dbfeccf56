"""Channels that speak through Apprise: a kind gives its fields and an Apprise address made of them.

Owns starting the process that sends (`alerts/apprise_process.py`) and what its result means. Must not import Apprise:
it takes most of a second and tens of megabytes, which only that process spends. Invariant: addresses and secrets reach
the process on its standard input, never in arguments or the environment, and none comes back.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from halfscope_server.alerts.channels.base import Field
from halfscope_server.alerts.dialing import Reach
from halfscope_server.alerts.notification import Message
from halfscope_server.alerts.posting import Outcome, judged

MODULE = "halfscope_server.alerts.apprise_process"
START_S = 30.0
"""What starting Python and loading Apprise may take besides sending, on a busy machine; a second on an idle one."""
KEPT_VARIABLES = (
    *("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)
"""Of the environment. Proxies are not among them, nor anything of the server's."""
_MARKUP = re.compile(r"@(?=\w)|<(?=[!@#/\w])|\](?=\()")
"""`@everyone`; `<!channel>`, `<@U1>`, `<https://x|y>`, `<b>`; `[y](https://x)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppriseChannel:
    """A kind whose messages go through Apprise."""

    kind: str
    title: str
    text: str
    fields: tuple[Field, ...]
    address: Callable[[Mapping[str, str]], str]
    """Apprise's address, out of the fields' values; they have met their patterns."""
    per_minute: float = 15
    """Most chats take about 20 (DingTalk, WeCom, Telegram groups)."""
    max_notices: int = 50

    def problems(self, values: Mapping[str, str]) -> dict[str, str]:
        """Nothing beyond the patterns: whether an address is good, only sending shows."""
        return {}

    def send(self, values: Mapping[str, str], message: Message, reach: Reach) -> Outcome:
        """Send it in a process of its own."""
        request = {
            "url": self.address(values),
            "title": quiet(message.title),
            "text": quiet(message.text),
            "type": "success" if message.is_resolved else _TYPES[message.severity],
            "send_s": reach.send_s,
            "allow_private": reach.policy.allow_private,
            "networks": [str(network) for network in reach.policy.allow_networks],
        }
        environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-m", MODULE],
                input=json.dumps(request).encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**environment, "HOME": "/nonexistent"},
                cwd="/",
                timeout=reach.send_s + START_S,
                check=False,
            )
            result = json.loads(done.stdout)
        except subprocess.TimeoutExpired:
            return Outcome(ok=False, text="the process that sends through Apprise took too long and was ended")
        except (OSError, ValueError):
            return Outcome(ok=False, text="the process that sends through Apprise ended without a result")
        return _outcome(result, self.title)


def quiet(text: str) -> str:
    """A text that calls nobody and hides no address: mentions, tags and links behind words are broken up by a space
    that is not seen. What is left of a chat's markup only makes letters bold."""
    return _MARKUP.sub("\\g<0>\u200b", text)


def _outcome(result: Mapping[str, Any], title: str) -> Outcome:
    """What the process's result means."""
    if result["ok"]:
        return Outcome(ok=True, text=f"{title} took it")
    if result["refused"]:
        return Outcome(ok=False, text=str(result["refused"]), may_retry=False)
    if not result["answers"]:
        cannot = any(words in result["error"] for words in ("Apprise cannot read", "not installed", "was not asked"))
        return Outcome(ok=False, text=result["error"] or f"{title}: nothing was answered", may_retry=not cannot)
    answer = result["answers"][-1]
    if 200 <= answer["status"] < 300:
        said = f": {answer['said']}" if answer["said"] else ""
        return Outcome(ok=False, text=f"{answer['host']} answered {answer['status']} but refused the message{said}")
    return judged(int(answer["status"]), answer["host"], answer["retry_after"])


_TYPES = {"info": "info", "warning": "warning", "critical": "failure"}
