"""Compression of stack traces against phrases that most Python tracebacks contain.

A plain zlib record of a 3 to 5 KB stack takes two write units, and with the phrases one
(docs/decisions/stacks-are-compressed-against-known-phrases.md). The invariant: a stack is read with
the phrases that it was stored with. They are part of the stored format: other phrases get a name of
their own, beside this one.
"""

import zlib
from typing import Final

from rdq_core.domain.limits import MAX_STACK_BYTES
from rdq_core.stores.dynamodb.values import decompress

ENCODING: Final = "es1"
"""The name of these phrases in a record."""

# zlib encodes short distances in fewer bits, so the most frequent phrases come last ("zlib manual",
# deflateSetDictionary).
_PHRASES: Final = b"""\
KeyError: ValueError: invalid literal for int() with base 10: 'TypeError: AttributeError: \
'NoneType' object has no \
attribute 'RuntimeError: OSError: PermissionError: FileNotFoundError: [Errno 2] No such file or \
directory: '\
json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)
TimeoutError: timed out
concurrent.futures._base.TimeoutError
asyncio.exceptions.CancelledError
ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed
socket.gaierror: [Errno -2] Name or service not known
ConnectionResetError: [Errno 104] Connection reset by peer
ConnectionRefusedError: [Errno 111] Connection refused
urllib3.exceptions.MaxRetryError: HTTPSConnectionPool(host='api.', port=443): Max retries \
exceeded with url: / (Caused \
by NewConnectionError('<urllib3.connection.HTTPSConnection object at 0x7f>: Failed to establish \
a new connection: '))
requests.exceptions.ConnectionError: ('Connection aborted.', RemoteDisconnected('Remote end \
closed connection without \
response'))
requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://
botocore.exceptions.ClientError: An error occurred (ThrottlingException) when calling the  \
operation: Rate exceeded
  File "/var/lang/lib/python3.12/asyncio/base_events.py", line 687, in run_until_complete
    return future.result()
  File "/usr/local/lib/python3.11/concurrent/futures/thread.py", line 58, in run
    result = self.fn(*self.args, **self.kwargs)
  File "/usr/local/lib/python3.11/json/__init__.py", line 346, in loads
    return _default_decoder.decode(s)
  File "/usr/local/lib/python3.11/socket.py", line 851, in create_connection
    sock.connect(sa)
    raise exceptions[0]
  File "/usr/local/lib/python3.11/http/client.py", line 1303, in request
    self._send_request(method, url, body, headers, encode_chunked)
    self.endheaders(body, encode_chunked=encode_chunked)
    self._send_output(message_body, encode_chunked=encode_chunked)
    self.sock = self._create_connection(
  File "/opt/venv/lib/python3.12/site-packages/requests/sessions.py", line 703, in send
    r = adapter.send(request, **kwargs)
    return self.request("POST", url, data=data, json=json, **kwargs)
  File "/opt/venv/lib/python3.12/site-packages/urllib3/connectionpool.py", line 789, in urlopen
    response = self._make_request(
    retries = retries.increment(
  File "/var/lang/lib/python3.12/site-packages/botocore/client.py", line 602, in _api_call
    return self._make_api_call(operation_name, kwargs)
    raise error_class(parsed_response, operation_name)
    return await self.app(scope, receive, send)
    response = self.session.post(self.url, timeout=self.timeout, headers=self.headers)
    response.raise_for_status()
    return func(*args, **kwargs)
    result = func(self, *args, **kwargs)
    with self.lock:
    for item in items:
    yield from
    return wrapper(
    super().__init__(
    raise ValueError(f"

The above exception was the direct cause of the following exception:

During handling of the above exception, another exception occurred:

  File "<frozen importlib._bootstrap>", line 1, in <module>
  File "<string>", line 1, in __call__
    ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/srv/app/
  File "/app/
  File "/opt/python/
  File "/var/task/handlers.py", line 10, in handler
Traceback (most recent call last):
  File "/usr/local/lib/python3.12/site-packages/
"""


def compressed(stack: bytes) -> bytes:
    """A stack, compressed."""
    stream = zlib.compressobj(level=9, zdict=_PHRASES)
    return stream.compress(stack) + stream.flush()


def decompressed(content: bytes) -> bytes:
    """The stack. Raises zlib.error for content that was not compressed with these phrases."""
    return decompress(zlib.decompressobj(zdict=_PHRASES), content, MAX_STACK_BYTES)
