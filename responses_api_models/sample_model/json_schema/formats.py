"""For each `format` of JSON Schema a pattern whose every match is of that format.

Not every string of the format matches: the patterns are for making strings, and keep to the plain ones
(years 1970 to 2049, days up to the 28th, names of lower-case letters).
"""

from __future__ import annotations

_LABEL = r"[a-z]([a-z0-9]{0,10}[a-z0-9])?"
_HOST = rf"{_LABEL}(\.{_LABEL}){{1,3}}"
_DATE = r"(19[7-9]\d|20[0-4]\d)-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])"
_TIME = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-](0\d|1[0-2]):(00|30))"
_OCTET = r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_MAIL = rf"[a-z][a-z0-9]{{2,11}}([._-][a-z0-9]{{1,11}}){{0,4}}@{_HOST}"
_ADDRESS = rf"https://{_HOST}(/[a-z0-9_-]{{1,12}})*"

FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": r"P(\d{1,3}D(T\d{1,2}H)?|T\d{1,2}H\d{1,2}M|\d{1,2}Y\d{1,2}M|\d{1,2}W)",
    "email": _MAIL,
    "idn-email": _MAIL,
    "hostname": _HOST,
    "idn-hostname": _HOST,
    "ipv4": rf"{_OCTET}(\.{_OCTET}){{3}}",
    "ipv6": r"[0-9a-f]{1,4}(:[0-9a-f]{1,4}){7}",
    "uri": _ADDRESS,
    "uri-reference": _ADDRESS,
    "iri": _ADDRESS,
    "iri-reference": _ADDRESS,
    "uri-template": rf"{_ADDRESS}/\{{[a-z]{{1,8}}\}}",
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
    "json-pointer": r"(/[a-z0-9]{1,8}){1,4}",
    "relative-json-pointer": r"[1-9](/[a-z0-9]{1,8}){1,4}",
    "regex": r"\^[a-z]{1,8}\[0-9\]\{[1-9]\}\$",
}
FORMATS = {name: f"^({pattern})$" for name, pattern in FORMATS.items()}
