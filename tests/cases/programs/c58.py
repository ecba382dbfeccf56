"""NaN and Infinity in JSON: Python writes them, strict parsers refuse the whole document."""

import json

from support import report


def refuse(constant: str) -> None:
    raise ValueError(constant)


document = json.dumps({"loss": float("nan"), "scale": float("inf"), "step": 7})
strict = blocked = None
try:
    json.loads(document, parse_constant=refuse)
except ValueError as error:
    strict = str(error)
try:
    json.dumps({"loss": float("nan")}, allow_nan=False)
except ValueError as error:
    blocked = str(error)
report(strict is not None, python_writes=document, strict_parser_rejects=strict, allow_nan_false=blocked)
