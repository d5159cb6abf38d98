import pytest

from rdq_core.domain.attempt import AttemptError
from rdq_core.domain.fingerprint import fingerprint, normalise, top_frame

PYTHON = """Traceback (most recent call last):
  File "/var/task/rdq_core/engine/execution.py", line 60, in _call
    return self._handler.call(self._value, self._context)
  File "/var/task/app/charge.py", line {line}, in charge
    bank.send(order)
  File "/opt/python/lib/python3.11/site-packages/requests/api.py", line 73, in get
    raise
ConnectionError: {message}
"""
NODE = """Error: boom
    at internalTask (node:internal/process:95:5)
    at charge (/var/task/src/charge.js:10:{line})
    at async handler (/var/task/src/index.js:3:5)"""
JAVA = """java.net.SocketTimeoutException: connect timed out
\tat java.base/java.net.Socket.connect(Socket.java:12)
\tat com.example.Charge.send(Charge.java:{line})"""


def an_error(
    message: str = "timed out", *, stack: str | None = None, **fields: str
) -> AttemptError:
    return AttemptError(type=fields.get("type", "ConnectionError"), message=message, stack=stack)


@pytest.mark.parametrize("template", [PYTHON, NODE, JAVA])
def test_a_deploy_that_moves_lines_does_not_split_a_group(template: str) -> None:
    before, after = (an_error(stack=template.format(line=line, message="x")) for line in (10, 99))
    assert fingerprint("charge", before) == fingerprint("charge", after)


@pytest.mark.parametrize(
    ("stack", "frame"),
    [
        (PYTHON.format(line=1, message="x"), "charge:charge"),
        (NODE.format(line=1), "charge:charge"),
        (JAVA.format(line=1), "com.example.Charge.send"),
        (None, None),
        ("no frames here", None),
    ],
)
def test_the_innermost_frame_of_the_applications_own_code_counts(
    stack: str | None, frame: str | None
) -> None:
    assert top_frame(stack) == frame


def test_with_a_stack_the_message_does_not_matter() -> None:
    first, second = (
        an_error(text, stack=PYTHON.format(line=1, message=text))
        for text in ("order 1", "other words")
    )
    assert fingerprint("charge", first) == fingerprint("charge", second)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 17 of 'Ann'", "order 9 of 'Bob'"),
        ("no file /var/data/1.csv", "no file /srv/other/2.csv"),
        ("id 0192d3a4-0000-7000-8000-00000000000a", "id 0192d3a4-ffff-7000-8000-00000000000b"),
        ("at 0xdeadbeef", "at 0x12"),
        ("trace 4bf92f3577b34da6", "trace 00f067aa0ba902b7"),
        ("task 01ARZ3NDEKTSV4RRFFQ69G5FAV", "task 01BX5ZZKBKACTAV9WEVGEMMVRZ"),
    ],
)
def test_what_varies_from_case_to_case_is_taken_out_of_a_message(one: str, other: str) -> None:
    assert normalise(one) == normalise(other)
    assert fingerprint("charge", an_error(one)) == fingerprint("charge", an_error(other))


def test_different_bugs_stay_apart() -> None:
    prints = {
        fingerprint("charge", an_error("timed out")),
        fingerprint("refund", an_error("timed out")),
        fingerprint("charge", an_error("refused")),
        fingerprint("charge", an_error("timed out", type="TimeoutError")),
        fingerprint("charge", an_error("timed out", stack=NODE.format(line=1))),
        fingerprint("charge", an_error("timed out", stack=JAVA.format(line=1))),
    }
    assert len(prints) == 6


def test_an_override_stands_for_everything_but_the_handler() -> None:
    one, other = an_error("a"), an_error("b", type="X")
    assert fingerprint("charge", one, override="bank") == fingerprint(
        "charge", other, override="bank"
    )
    assert fingerprint("charge", one, override="bank").startswith("v1:")
