"""The header field RateLimit: a List of RFC 9651, which is ignored as a whole if it is malformed."""

from __future__ import annotations

import re
from typing import Iterator, Mapping, Optional

_KEY = r"[a-z*][a-z0-9_.*-]*"
_STRING = r'"[\x20!\x23-\x5b\x5d-\x7e]*(?:\\["\\][\x20!\x23-\x5b\x5d-\x7e]*)*"'
_VALUE = "|".join((
    r"-?(?:[0-9]{1,12}\.[0-9]{1,3}|[0-9]{1,15})", _STRING, r"[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*",
    r":[A-Za-z0-9+/=]*:", r"\?[01]", r"@-?[0-9]{1,15}", r'%"(?:[\x20!\x23\x24\x26-\x7e]|%[0-9a-f]{2})*"',
))
_PARAMETER = re.compile(f"; *({_KEY})(?:=({_VALUE}))?")
_MEMBER = re.compile(f"({_STRING})((?:; *{_KEY}(?:=(?:{_VALUE}))?)*)[ \t]*(,[ \t]*|$)")
_PLAIN = re.compile(rf"({_KEY})=([0-9]{{1,15}})[ \t]*(,[ \t]*|$)")


def _whole(pattern: re.Pattern[str], field: str) -> Optional[list[re.Match[str]]]:
    """The matches that make up the field, or None if they do not."""
    found: list[re.Match[str]] = []
    at = 0
    while at < len(field):
        if not (match := pattern.match(field, at)):
            return None
        found.append(match)
        at = match.end()
    return found if found and not found[-1].group(3) else None


def members(field: str) -> Optional[list[dict[str, str]]]:
    """The parameters of each member, or None if the field is malformed or empty."""
    found = _whole(_MEMBER, field.strip(" "))
    return None if found is None else [dict(_PARAMETER.findall(m.group(2))) for m in found]


def _number(text: Optional[str]) -> int:
    return int(text) if text and re.fullmatch("-?[0-9]+", text) else -1


def exhausted(field: str) -> Iterator[int]:
    """The seconds of each member of which nothing remains: t, or reset as in draft-07."""
    known = members(field)
    if known is None:
        plain = _whole(_PLAIN, field.strip(" "))
        values: Mapping[str, str] = {str(m.group(1)): str(m.group(2)) for m in plain or ()}
        if _number(values.get("remaining")) == 0 and _number(values.get("reset")) >= 0:
            yield _number(values.get("reset"))
        return
    if any(_number(m.get("r")) < 0 or "t" in m and _number(m["t"]) < 0 for m in known):
        return
    yield from (_number(m["t"]) for m in known if _number(m["r"]) == 0 and "t" in m)


def joined(theirs: list[str], name: str, ours: str) -> str:
    """The value of a field about limits in the answer of an application that has set it too. Lists
    of limits are joined; otherwise there is one limit, which is ours."""
    earlier = ", ".join(theirs)
    if name.lower() not in ("ratelimit", "ratelimit-policy") or members(earlier) is None:
        return ours
    return f"{earlier}, {ours}"
