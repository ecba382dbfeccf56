"""E-mail over SMTP.

Owns the letter and the conversation with the mail server. Invariants: headers are made by the standard library's
policy, which refuses line breaks; the HTML part is escaped text and links of ours; a password goes over TLS or not at
all; the same message has the same Message-ID, so a second copy is folded into the first.
"""

from __future__ import annotations

import contextlib
import html
import re
import smtplib
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any, ClassVar

from halfscope_server.alerts.addresses import Refused
from halfscope_server.alerts.channels.base import Field
from halfscope_server.alerts.dialing import Reach, default_context, explain
from halfscope_server.alerts.notification import Message, one_line
from halfscope_server.alerts.posting import Outcome

PORTS = {"starttls": 587, "tls": 465, "none": 25}
ADDRESS = r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?"
"""RFC 5321's, without quoted names, literals and comments."""
MAX_SERVER_TEXT_CHARS = 200


@dataclass(frozen=True, slots=True)
class Email:
    """Sends a letter with a plain and an HTML part."""

    kind: ClassVar[str] = "email"
    title: ClassVar[str] = "E-mail"
    text: ClassVar[str] = "Sends letters through your mail server."
    per_minute: ClassVar[float] = 10
    max_notices: ClassVar[int] = 50
    fields: ClassVar[tuple[Field, ...]] = (
        Field(
            name="to",
            title="To",
            text="Addresses, separated by commas.",
            placeholder="team@example.org, on-call@example.org",
            pattern=rf"{ADDRESS}(\s*,\s*{ADDRESS}){{0,49}}",
            expected="up to 50 addresses, separated by commas",
        ),
        Field(
            name="from",
            title="From",
            text="An address that the mail server lets you send as.",
            placeholder="halfscope@example.org",
            pattern=ADDRESS,
            expected="one address",
        ),
        Field(
            name="host",
            is_place=True,
            title="Mail server",
            placeholder="smtp.example.org",
            pattern=r"[A-Za-z0-9.:-]{1,253}",
            expected="the name of a host",
        ),
        Field(
            name="security",
            is_place=True,
            title="Security",
            text="starttls, tls or none; empty: starttls.",
            placeholder="starttls",
            required=False,
            pattern="starttls|tls|none",
            expected="starttls, tls or none",
        ),
        Field(
            name="port",
            is_place=True,
            title="Port",
            text="Empty: 587 with starttls, 465 with tls, 25 with none.",
            placeholder="587",
            required=False,
            pattern="[1-9][0-9]{0,4}",
            expected="a number up to 65535",
        ),
        Field(name="user", title="User", text="Where the server asks for one.", required=False),
        Field(name="password", title="Password", text="The user's.", secret=True, required=False),
    )

    def problems(self, values: Mapping[str, str]) -> dict[str, str]:
        """A password without a user, or in the open."""
        if values["port"] and int(values["port"]) > 65535:
            return {"port": "Port is above 65535"}
        if bool(values["user"]) != bool(values["password"]):
            missing = "password" if values["user"] else "user"
            return {missing: "User and password go together: one of them is missing"}
        if values["password"] and values["security"] == "none":
            return {"security": "a password is sent over TLS only: take starttls or tls"}
        return {}

    def send(self, values: Mapping[str, str], message: Message, reach: Reach) -> Outcome:
        """Send one letter to all of `to`."""
        host, security = values["host"], values["security"] or "starttls"
        recipients = [part.strip() for part in values["to"].split(",")]
        letter = letter_of(message, sender=values["from"], recipients=recipients)
        try:
            with reach.connection(host, int(values["port"] or PORTS[security]), tls=security == "tls") as opened:
                refused = _converse(opened, reach, values, security, letter, recipients)
        except Refused as error:
            return Outcome(ok=False, text=str(error), may_retry=False)
        except smtplib.SMTPException as error:
            return _explained(error, host)
        except (OSError, EOFError) as error:
            return Outcome(ok=False, text=explain(error, host))
        if refused:
            return Outcome(ok=True, text=f"{host} took it, but not for {', '.join(sorted(refused))}")
        return Outcome(ok=True, text=f"{host} took it for {len(recipients)} address{'es' * (len(recipients) != 1)}")


class _Client(smtplib.SMTP):
    """Speaks over a connection that is open already, so that it opens none."""

    def __init__(self, opened: socket.socket, host: str, timeout_s: float) -> None:
        self._opened = opened
        name = re.sub(r"[^A-Za-z0-9.-]", "", socket.gethostname()) or "halfscope"
        super().__init__(local_hostname=name, timeout=timeout_s)
        self._host = host  # whose certificate STARTTLS looks at
        code, text = self.connect(host, 25)
        if code != 220:
            self.close()
            raise smtplib.SMTPConnectError(code, text)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        return self._opened


def _converse(
    opened: socket.socket,
    reach: Reach,
    values: Mapping[str, str],
    security: str,
    letter: EmailMessage,
    recipients: list[str],
) -> dict[str, tuple[int, bytes]]:
    """Send over an open connection; gives the recipients that were refused while others were not."""
    client = _Client(opened, values["host"], reach.send_s)
    try:
        if security == "starttls":
            client.starttls(context=reach.tls or default_context())
        if values["user"]:
            client.login(values["user"], values["password"])
        refused = client.send_message(letter, from_addr=values["from"], to_addrs=recipients)
        with contextlib.suppress(OSError):
            client.putcmd("QUIT")  # it has taken the letter, whatever it says now
        return refused
    finally:
        client.close()


def letter_of(message: Message, *, sender: str, recipients: list[str]) -> EmailMessage:
    """The letter: plain text, and the same as HTML."""
    letter = EmailMessage()
    letter["Subject"] = f"[halfscope] {message.title}"
    letter["From"] = f"halfscope <{sender}>"
    letter["To"] = ", ".join(recipients)
    letter["Date"] = formatdate()
    letter["Message-ID"] = f"<{message.id}@halfscope.{sender.rpartition('@')[2]}>"
    letter["Auto-Submitted"] = "auto-generated"
    letter.set_content(message.text + "\n")
    letter.add_alternative(_html(message), subtype="html")
    return letter


def _html(message: Message) -> str:
    parts = ["<p>" + "<br>\n".join(map(_line, lines)) + "</p>" for lines in message.paragraphs]
    return "<!doctype html>\n<html><body>\n" + "\n".join(parts) + "\n</body></html>\n"


def _line(line: str) -> str:
    """One line, escaped; a line that ends in a web address of its own becomes a link."""
    label, address = ("Runbook: ", line.removeprefix("Runbook: ")) if line.startswith("Runbook: ") else ("", line)
    if re.fullmatch(r"https?://[^\s<>\"']+", address):
        safe = html.escape(address, quote=True)
        return f'{label}<a href="{safe}">{safe}</a>'
    return html.escape(line)


def _explained(error: smtplib.SMTPException, host: str) -> Outcome:
    """What a mail server's refusal means: 5xx is for good, 4xx passes (RFC 5321, 4.2.1)."""
    code, said = _code_of(error)
    if isinstance(error, smtplib.SMTPNotSupportedError):
        text = f"{host} offers no {'TLS' if 'TLS' in str(error) else 'such way to sign in'}; change Security or User"
        return Outcome(ok=False, text=text, may_retry=False)
    if isinstance(error, smtplib.SMTPServerDisconnected):
        return Outcome(ok=False, text=f"{host} ended the conversation")
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return Outcome(ok=False, text=f"{host} refuses user or password ({code})", may_retry=False)
    if code <= 0:
        return Outcome(ok=False, text=f"{host}: {one_line(str(error), MAX_SERVER_TEXT_CHARS)}", may_retry=False)
    what = "every recipient" if isinstance(error, smtplib.SMTPRecipientsRefused) else "the letter"
    return Outcome(ok=False, text=f"{host} refuses {what} ({code} {said})", may_retry=not 500 <= code < 600)


def _code_of(error: Any) -> tuple[int, str]:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        # Where it is one for good and one for now, trying again is worth it.
        code, said = min(error.recipients.values())
    else:
        code, said = getattr(error, "smtp_code", 0), getattr(error, "smtp_error", b"")
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    return int(code), one_line(text, MAX_SERVER_TEXT_CHARS)


CHANNEL = Email()
