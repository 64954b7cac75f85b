"""What a request may be: each is seen, taken or refused as by uvicorn's protocol."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.servers.protocol.caller import asking, in_chunks, said, same, talk

REQUESTS: dict[str, bytes] = {
    **{
        f"{method} without a body": asking("/x", method=method)
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "PROPFIND", "SEARCH")
    },
    **{f"{method} with a body": asking("/x", b"abc", method=method) for method in ("GET", "POST", "PUT", "DELETE")},
    "a body of no bytes": asking("/x", b""),
    "a body in chunks": in_chunks(b"abc", b"d" * 300, path="/x"),
    "a body of no chunks": in_chunks(path="/x"),
    "a chunk with an extension": asking("/x", None, "transfer-encoding: chunked", method="POST")
    + b"3;a=b\r\nabc\r\n0\r\n\r\n",
    "a chunked body with a trailer": in_chunks(b"abc", path="/x", trailer=b"x-checksum: 1\r\n"),
    "a query": asking("/x?a=1&b=%20&c"),
    "a query of nothing": asking("/x?"),
    "two question marks": asking("/x?a?b"),
    "a fragment": asking("/x?a=1#there"),
    "a fragment before a query": asking("/x#there?a=1"),
    "percents": asking("/%41%2Fb%20c%C3%A4"),
    "percents that are none": asking("/%zz%f%"),
    "percents that are no UTF-8": asking("/%ff%fe"),
    "two slashes": asking("//a//b"),
    "dots": asking("/a/../b/./c"),
    "odd characters": asking("/a;b=c,d'e(f)*!~$&+|[]{}\\^`\"<>"),
    "an absolute target": asking("http://there:80/x?a=1"),
    "an absolute target of another scheme": asking("https://u:p@there/x"),
    "all of the server": asking("*", method="OPTIONS"),
    "repeated headers": asking("/x", None, "x-a: 1", "X-A: 2", "cookie: a=1", "cookie: b=2"),
    "an empty header": asking("/x", None, "x-a:", "x-b: "),
    "blanks round a value": asking("/x", None, "x-a: \t b c \t "),
    "a value that is not ASCII": asking("/x", None, "x-a: ä\u20ac"),
    "names in capitals": asking("/x", None, "ACCEPT: a", "Content-Type: b", "X-Nemo-Gym-Run-Id: c"),
    "a name with odd characters": asking("/x", None, "x!#$%&'*+-.^_`|~9: 1"),
    "many headers": asking("/x", None, *(f"x-{number}: {number}" for number in range(300))),
    "a long header": asking("/x", None, "x-a: " + "a" * 100_000),
    "a long target": asking("/" + "a" * 30_000 + "?" + "b" * 30_000),
    "blank lines before": b"\r\n\r\n" + asking("/x"),
    "a caller that wants the connection kept": asking("/x", None, "connection: keep-alive"),
    "a caller that wants it closed": asking("/x", None, "connection: close"),
    "a caller that wants it closed, in capitals": asking("/x", None, "Connection: Close"),
    "a caller that wants it closed, among others": asking("/x", None, "connection: te, close"),
    "HTTP/1.0": b"GET /x HTTP/1.0\r\n\r\n",
    "HTTP/1.0 that wants it kept": b"GET /x HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
    "HTTP/1.0 with a body": b"POST /x HTTP/1.0\r\ncontent-length: 3\r\n\r\nabc",
    "no host": b"GET /x HTTP/1.1\r\n\r\n",
    "an expectation that nobody knows": asking("/x", None, "expect: miracles"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_seen_and_answered_as_by_uvicorns_protocol(both, name):
    request = REQUESTS[name]
    (answer,), _ = same(both, [request], request.split()[0].decode())
    assert answer.status == 200


def test_what_an_app_sees_is_what_was_sent(ours):
    (answer,), last = talk(ours, [asking("/a%20b?c=d", b"e", "X-Y: z", method="PUT")], ["PUT"])
    assert answer.told == {
        "type": "http",
        "http_version": "1.1",
        "scheme": "http",
        "method": "PUT",
        "root_path": "",
        "path": "/a b",
        "raw_path": "/a%20b",
        "query_string": "c=d",
        "headers": [["host", "here"], ["x-y", "z"], ["content-length", "1"]],
        "state": {"from lifespan": 1},
        "body": "e",
    }
    assert last.startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_target_may_be_longer_than_uvicorns_protocol_takes(ours):
    (answer,), _ = talk(ours, [asking("/" + "a" * 100_000 + "?" + "b" * 100_000)], ["GET"])
    assert answer.told["path"] == answer.told["raw_path"] == "/" + "a" * 100_000
    assert answer.told["query_string"] == "b" * 100_000


@pytest.mark.parametrize(("target", "path"), [("http://there", "/"), ("http://there?a=1", "/")])
def test_an_absolute_target_without_a_path_means_the_root_where_uvicorn_refuses_it(ours, target, path):
    (answer,), _ = talk(ours, [asking(target)], ["GET"])
    assert answer.told["path"] == path


MALFORMED: dict[str, bytes] = {
    "an unknown method": b"FETCH / HTTP/1.1\r\n\r\n",
    "a method in small letters": b"get / HTTP/1.1\r\n\r\n",
    "no target": b"GET HTTP/1.1\r\n\r\n",
    "a target without a slash": b"GET x HTTP/1.1\r\n\r\n",
    "a blank in the target": b"GET /a b HTTP/1.1\r\n\r\n",
    "a tunnel": b"CONNECT there:443 HTTP/1.1\r\n\r\n",
    "an unknown version": b"GET / HTTP/3.7\r\n\r\n",
    "another protocol's greeting": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "HTTP/2 at once": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a header without a colon": b"GET / HTTP/1.1\r\nhost\r\n\r\n",
    "a header without a name": b"GET / HTTP/1.1\r\n: x\r\n\r\n",
    "a blank before the colon": b"GET / HTTP/1.1\r\nhost : x\r\n\r\n",
    "a NUL in a header": b"GET / HTTP/1.1\r\nx-a: b\0c\r\n\r\n",
    "a NUL in the target": b"GET /\0 HTTP/1.1\r\n\r\n",
    "a header that goes on in the next line": b"GET / HTTP/1.1\r\nx-a: b\r\n c\r\nconnection: close\r\n\r\n",
    "line ends of one character": b"GET / HTTP/1.1\nconnection: close\n\n",
    "both lengths": b"POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
    "a length that is none": b"POST / HTTP/1.1\r\ncontent-length: -3\r\n\r\nabc",
    "a length beyond all": b"POST / HTTP/1.1\r\ncontent-length: 99999999999999999999999\r\n\r\nabc",
    "a chunk's size that is none": b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
    "a chunk longer than it says": b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n",
    "an unknown coding": b"POST / HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\nabc",
    "garbage": bytes(range(256)),
    "garbage behind a request": asking("/x") + b"\0\1\2\3",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_not_http_is_refused_as_by_uvicorns_protocol(both, name):
    ours, theirs = (said(served, MALFORMED[name]) for served in both.values())
    assert ours == theirs
    assert b"connection: close" in ours


@pytest.mark.parametrize(
    "pattern",
    ["GET /a%bc HTTP/1.1|x-a: b", "GET /?a%bc HTTP/1.1|x-a: b", "GET / HTTP/1.1|x%b-a: b", "GET / HTTP/1.1|x-a: b%bc"],
    ids=["the path", "the query", "a header's name", "a header's value"],
)
def test_every_byte_is_taken_or_refused_as_by_uvicorns_protocol(both, pattern):
    head = pattern.replace("|", "\r\nconnection: close\r\n").encode() + b"\r\n\r\n"
    for byte in range(256):
        data = head % bytes([byte])
        ours, theirs = (said(served, data, 0.2) for served in both.values())
        assert ours == theirs, data


@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=3))
@settings(max_examples=60, deadline=None, database=None)
def _compare_a_spoilt_request(both, place, spoilt):
    request = b"POST /x?a=1 HTTP/1.1\r\nconnection: close\r\nhost: here\r\ncontent-length: 3\r\n\r\nabc"
    place %= len(request)
    data = request[:place] + spoilt + request[place + len(spoilt) :]
    ours, theirs = (said(served, data, 0.03) for served in both.values())
    # A head that ends early leaves bytes behind, which are refused before or after the answer has left.
    assert ours == theirs or b"Invalid HTTP" in ours + theirs, data


def test_spoilt_requests_are_taken_or_refused_as_by_uvicorns_protocol(both):
    _compare_a_spoilt_request(both)
