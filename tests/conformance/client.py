"""A client that follows no redirect: Python's http.client and urllib alone, as a small script would use them.

Called by python.rs with the address of a node; prints how many checks held, or fails with the first that did not.
"""

import http.client
import json
import sys
import threading
import urllib.error
import urllib.request

address = sys.argv[1]
names = int(sys.argv[2])
checks = 0


def check(what, got, want):
    global checks
    if got != want:
        raise SystemExit(f"{what}: {got!r}, not {want!r}")
    checks += 1


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args):
        return None


opener = urllib.request.build_opener(NoRedirect)


def ask(method, path, body=None, **headers):
    """One request over a connection of its own; gives status, headers and body."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request(method, "/v1/stream/" + path, body, headers)
    response = connection.getresponse()
    answer = response.status, response.headers, response.read()
    connection.close()
    return answer


def chunks(*parts):
    """A body whose length nobody knows before its end: sent in chunks, and never twice."""
    yield from parts


def one(name):
    text = {"content_type": "text/plain"}

    # Create, again, and not as something else.
    check("create", ask("PUT", name, **text)[0], 201)
    check("create again", ask("PUT", name, **text)[0], 200)
    check("create as JSON", ask("PUT", name, content_type="application/json")[0], 409)

    # Append, with a length and without.
    check("append", ask("POST", name, b"first ", **text)[0], 204)
    check("append in chunks", ask("POST", name, chunks(b"sec", b"ond "), **text)[0], 204)
    status, headers, _ = ask("HEAD", name)
    check("head", (status, headers["stream-next-offset"]), (200, "00000000000000000013"))

    # Read by urllib, from the beginning and from an offset.
    with opener.open(f"http://{address}/v1/stream/{name}?offset=-1") as response:
        check("read", (response.status, response.read()), (200, b"first second "))
        check("up to date", response.headers["stream-up-to-date"], "true")
    with opener.open(f"http://{address}/v1/stream/{name}?offset=00000000000000000006") as response:
        check("read on", response.read(), b"second ")

    # A long-poll waits through this node until something comes through it.
    told = []
    waiting = threading.Thread(
        target=lambda: told.append(ask("GET", name + "?offset=00000000000000000013&live=long-poll"))
    )
    waiting.start()
    check("append while one waits", ask("POST", name, b"third ", **text)[0], 204)
    waiting.join()
    check("long-poll", (told[0][0], told[0][2]), (200, b"third "))

    # An event stream, from the beginning to the close.
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("GET", f"/v1/stream/{name}?offset=-1&live=sse")
    response = connection.getresponse()
    check("events", (response.status, response.headers["content-type"].split(";")[0]), (200, "text/event-stream"))
    check("close", ask("POST", name, b"end", stream_closed="true", **text)[0], 204)
    data, closed, event = "", False, None
    for line in response:
        line = line.decode().rstrip("\n")
        if line.startswith("event:"):
            event = line[6:].strip()
        elif line.startswith("data:") and event == "data":
            data += line[5:].removeprefix(" ")
        elif line.startswith("data:") and event == "control":
            closed = json.loads(line[5:]).get("streamClosed", False)
    connection.close()
    check("events until the close", (data, closed), ("first second third end", True))
    check("append to what is closed", ask("POST", name, b"x", **text)[0], 409)

    # A producer that repeats itself.
    produced = name + "-produced"
    check("create another", ask("PUT", produced, **text)[0], 201)
    producer = {"producer_id": "me", "producer_epoch": "0", "producer_seq": "0", **text}
    check("produce", ask("POST", produced, b"once", **producer)[0], 200)
    check("produce again", ask("POST", produced, b"once", **producer)[0], 204)
    check("once", ask("GET", produced + "?offset=-1")[2], b"once")

    # A fork shares what was there and goes its own way.
    fork = name + "-fork"
    forked = {"stream_forked_from": "/v1/stream/" + name, "stream_fork_offset": "00000000000000000006", **text}
    check("fork", ask("PUT", fork, **forked)[0], 201)
    check("append to the fork", ask("POST", fork, b"other", **text)[0], 204)
    check("read the fork", ask("GET", fork + "?offset=-1")[2], b"first other")

    # Delete; a source lasts, as gone, until its fork is deleted too.
    check("delete", ask("DELETE", name)[0], 204)
    check("gone", ask("GET", name + "?offset=-1")[0], 410)
    check("the fork stays", ask("GET", fork + "?offset=-1")[0], 200)
    check("delete the fork", ask("DELETE", fork)[0], 204)
    check("not found", ask("GET", fork + "?offset=-1")[0], 404)
    try:
        opener.open(f"http://{address}/v1/stream/{name}")
        check("urllib finds nothing", "an answer", "an error")
    except urllib.error.HTTPError as error:
        check("urllib finds nothing", error.code, 404)


# Several, so that they are at more than one node.
for n in range(names):
    one(f"python/{n}")
print(f"{checks} checks held")
