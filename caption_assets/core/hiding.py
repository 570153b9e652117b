"""What is secret in a text, hidden before the text is shown or written down: messages, details of faults, reports.

What stands in a catalog (`uri`, `record_json`) is the user's data: tables and exports keep it as it was written.
"""

from __future__ import annotations

import re

HIDDEN = "***"

# A password may hold `/` and `@`, a port is none; a file's name may hold `@`. Lengths are bounded, so that no text takes long.
# `user:password` is what messages say of an address's form.
_PASSWORD = re.compile(r"""(://)(?!user:password@)[^\s/:@\["<>]{1,200}:(?!\d*/)[^\s"<>]{0,1000}@""")
_USER = re.compile(r"""(://)(?!user:password@)[^\s/?#"<>]{0,1000}@""")
# All of a query, but in addresses that are literal: there `?` and `#` are letters of a name.
_QUERY = re.compile(r"""(?i)(\b(?!s3:|hf:|file:)[a-z][a-z0-9+.-]{1,30}://[^\s?#"<>]{1,1000}[?#])[^\s"<>]*[^\s"<>)\]}'.,:;]""")
_NAMED = re.compile(
    r"""(?ix)
    ( \b [\w-]{0,60} (?: signature | sig | token | secret | password | passwd | credential | (?:api|access|secret)[_-]?key )
    (?:[_-]?id)? (?: = | ["']\s?:\s? ) ["']? ) [^\s&"'<>\\,;]+"""
)
_BEARER = re.compile(r"(?i)(\bbearer\s+)\S+")
_PATTERNS = ((_PASSWORD, rf"\1{HIDDEN}@"), (_USER, rf"\1{HIDDEN}@"), *((p, rf"\1{HIDDEN}") for p in (_QUERY, _NAMED, _BEARER)))


def hidden(text: str, *secrets: str | None) -> str:
    """The text without users and passwords of addresses, queries of web addresses (signatures), bearer tokens, values whose
    names say that they are secret (`token=…`), and these secrets themselves. Hiding twice changes nothing."""
    for secret in filter(None, secrets):
        text = text.replace(secret, HIDDEN)
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text
