"""Fetching what an upload names by address, and everything that must not be fetched."""

import ipaddress
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from holdfast.config.server import Downloads
from holdfast.errors import HoldfastError, InvalidRequest, Refused, StorageUnavailable
from holdfast.server.sources import Sources


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root" / "inner").mkdir(parents=True)
    (tmp_path / "root" / "inner" / "file").write_bytes(b"segment")
    (tmp_path / "outside").write_bytes(b"canary")
    return tmp_path / "root"


@pytest.fixture
def sources(root):
    return Sources(Downloads(roots=(str(root),)), most_bytes=100)


def test_a_file_beneath_a_root_is_fetched(sources, root, tmp_path):
    sources.fetch(f"file://{root}/inner/file", tmp_path / "got")

    assert (tmp_path / "got").read_bytes() == b"segment"


@pytest.mark.parametrize(
    "spelling",
    [
        "file://{root}/../outside",
        "file://{root}/%2e%2e/outside",
        "file://{root}/inner/../../outside",
        "file://{root}//inner/file",
        "file://{root}/./inner/file",
        "file://{root}x/file",
        "file://{root}",
        "file://{root}/",
        "file://elsewhere{root}/inner/file",
        "file:{root}/inner/%00file",
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "file:etc/passwd",
        "/etc/passwd",
        "s3://bucket/key",
        "gopher://host/",
        "data:,canary",
        "jar:file:///etc/passwd",
        "file://{root}/inner/fi le",
        "file://{root}/inner/file?",
        "file://{root}/inner/file#x",
        "file://{root}/inner\\file",
        "",
        "http://[::1",
    ],
)
def test_no_other_spelling_leads_to_a_file(sources, root, tmp_path, spelling):
    with pytest.raises(Refused):
        sources.fetch(spelling.format(root=root), tmp_path / "got")
    with pytest.raises(Refused):
        sources.canonical_uri(spelling.format(root=root))


def test_queries_are_handed_the_one_spelling_of_a_file(sources, root):
    assert sources.canonical_uri(f"file:{root}/inner/%66ile") == f"file://{root}/inner/file"
    assert sources.canonical_uri(f"file://localhost{root}/inner/file") == f"file://{root}/inner/file"


@pytest.mark.parametrize(
    "spelling",
    ["inner/file?", "inner/file?/../../outside", "inner/file#", "inner/file#/../../outside", "inner/fil%3F",
     "inner/*", "inner/fil[e]", "inner/%7Bfile,other%7D", "inner/file%2525", "inner/f:ile", "inner/fil%2A"],
)  # fmt: skip
def test_queries_are_handed_no_pattern_and_nothing_that_readers_cut_off(sources, root, spelling):
    for name in ("fil?", "*", "fil[e]", "{file,other}", "file%25", "f:ile", "fil*"):
        (root / "inner" / name).write_bytes(b"segment")

    with pytest.raises(Refused):
        sources.canonical_uri(f"file://{root}/{spelling}")


def test_queries_are_handed_no_link_and_no_file_that_is_not_there(sources, root, tmp_path):
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "folder").symlink_to(tmp_path)

    for name in ("link", "folder/outside", "inner", "absent"):
        with pytest.raises((InvalidRequest, Refused)):
            sources.canonical_uri(f"file://{root}/{name}")
    with pytest.raises(Refused, match="copied first"):
        sources.canonical_uri("https://example.org/segment")


def test_no_link_is_followed_and_nothing_but_a_regular_file_is_opened(sources, root, tmp_path):
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "folder").symlink_to(tmp_path)
    os.mkfifo(root / "pipe")

    for name in ("link", "folder/outside", "pipe", "inner", "absent", "inner/file/deeper"):
        with pytest.raises(InvalidRequest):
            sources.fetch(f"file://{root}/{name}", tmp_path / f"got-{name.replace('/', '-')}")
    assert all(not file.read_bytes() for file in tmp_path.glob("got-*"))


def test_a_file_that_is_too_large_is_refused(root, tmp_path):
    sources = Sources(Downloads(roots=(str(root),)), most_bytes=6)

    with pytest.raises(InvalidRequest, match="too large"):
        sources.fetch(f"file://{root}/inner/file", tmp_path / "got")


class _Pages(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append((self.path, self.headers["Host"], self.headers.get("Authorization")))
        status, headers, body = self.server.pages.get(self.path, (404, {}, b""))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def site():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Pages)
    server.pages, server.asked = {}, []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def _allowed(site, *hosts, networks=("127.0.0.0/8",)):
    return Sources(
        Downloads(
            hosts=tuple(f"{host}:{site.server_port}" for host in hosts),
            networks=tuple(map(ipaddress.ip_network, networks)),
        ),
        most_bytes=100,
    )


def test_a_listed_host_in_a_listed_network_is_asked(site, tmp_path):
    site.pages["/a?x=1"] = (200, {}, b"segment")

    _allowed(site, "localhost").fetch(f"http://localhost:{site.server_port}/a?x=1", tmp_path / "got")

    assert (tmp_path / "got").read_bytes() == b"segment"
    assert site.asked == [("/a?x=1", f"localhost:{site.server_port}", None)]


@pytest.mark.parametrize(
    "uri",
    [
        "http://127.0.0.1:{port}/",
        "http://2130706433:{port}/",
        "http://0x7f000001:{port}/",
        "http://0177.0.0.1:{port}/",
        "http://127.1:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://localhost:1/",
        "http://localhost/",
        "http://localhost.:{port}@evil/",
        "http://user:canary@localhost:{port}/",
        "http://evil:{port}/",
        "http://localhost:99999999/",
        "https://localhost.evil:{port}/",
    ],
)
def test_a_host_that_is_not_listed_is_not_asked_however_it_is_written(site, tmp_path, uri):
    with pytest.raises(Refused) as refused:
        _allowed(site, "localhost").fetch(uri.format(port=site.server_port), tmp_path / "got")

    assert site.asked == []
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "[::ffff:127.0.0.1]", "[::1]", "169.254.169.254", "10.0.0.1"]
)
def test_a_listed_host_outside_the_listed_networks_is_not_asked(site, tmp_path, host):
    """A name server may answer with any address; loopback and private ones must be wanted."""
    sources = _allowed(site, host.strip("[]"), networks=())

    with pytest.raises(Refused, match="network"):
        sources.fetch(f"http://{host}:{site.server_port}/", tmp_path / "got")
    assert site.asked == []


@pytest.mark.parametrize(
    "target",
    [
        "http://169.254.169.254/latest",
        "file:///etc/passwd",
        "http://evil/",
        "gopher://x/",
        "/self",
        "//evil/x",
    ],
)
def test_a_redirect_is_checked_like_the_first_address(site, tmp_path, target):
    site.pages["/self"] = (302, {"Location": "/self"}, b"")
    site.pages["/a"] = (302, {"Location": target}, b"canary")

    with pytest.raises(Refused):
        _allowed(site, "localhost").fetch(f"http://localhost:{site.server_port}/a", tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == b""


def test_a_redirect_to_a_listed_host_is_followed(site, tmp_path):
    site.pages["/a"] = (307, {"Location": "/b"}, b"")
    site.pages["/b"] = (200, {}, b"segment")

    _allowed(site, "localhost").fetch(f"http://localhost:{site.server_port}/a", tmp_path / "got")

    assert (tmp_path / "got").read_bytes() == b"segment"


def test_a_large_answer_and_a_missing_one_are_refused(site, tmp_path):
    site.pages["/large"] = (200, {}, b"x" * 101)
    sources = _allowed(site, "localhost")

    for number, path in enumerate(("/large", "/absent")):
        with pytest.raises(InvalidRequest):
            sources.fetch(f"http://localhost:{site.server_port}{path}", tmp_path / f"got{number}")


def test_a_host_that_does_not_answer_is_an_outage(tmp_path, site):
    sources = _allowed(site, "localhost")
    site.shutdown()
    site.socket.close()

    with pytest.raises(StorageUnavailable):
        sources.fetch(f"http://localhost:{site.server_port}/", tmp_path / "got")


def test_nothing_may_be_fetched_by_default(tmp_path):
    for uri in (f"file://{tmp_path}/x", "http://example.com/x", "https://example.com/x"):
        with pytest.raises(HoldfastError):
            Sources(Downloads(), most_bytes=10).fetch(uri, tmp_path / uri[:5])


@pytest.mark.parametrize(
    "address",
    [
        "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::a00:1", "2002:7f00:1::", "::1",
        "::ffff:0:127.0.0.1", "fe80::5efe:10.0.0.1", "2001:0:4136:e378:8000:63bf:80ff:fffe",
        # Called global by some versions of Python.
        "fec0::1", "5f00::1", "3fff::1", "3fff:fff::1", "100:0:0:1::1", "192.0.0.1", "192.0.0.170",
        "192.88.99.1", "2001:1::1", "64:ff9b:1:5db8:d7:e00::", "4000::1", "::5db8:d70e",
        "::ffff:0:93.184.215.14",
        # And inside of others.
        "::ffff:192.0.0.1", "::ffff:192.88.99.1", "2002:c058:6301::1", "2002:c000:1::1", "2002:a00:1::1",
        "64:ff9b::c000:1", "64:ff9b::c058:6301", "64:ff9b::a00:1", "fec0::5efe:93.184.215.14",
        "2001:0:c000:1:8000:63bf:a247:28f1",
    ],
)  # fmt: skip
def test_no_form_of_a_private_address_counts_as_public(address):
    sources = Sources(Downloads(hosts=("files.example",)), most_bytes=10)

    assert not sources._may_connect(ipaddress.ip_address(address))


def test_a_public_address_is_public_in_either_family():
    sources = Sources(Downloads(hosts=("files.example",)), most_bytes=10)

    for address in ("93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "64:ff9b::5db8:d70e"):
        assert sources._may_connect(ipaddress.ip_address(address))
