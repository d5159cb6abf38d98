import gc
import weakref

import pytest

from rdq_core.domain.attempt import AttemptError, Code, error_from, own_error
from rdq_core.domain.limits import MAX_MESSAGE_BYTES, MAX_STACK_BYTES
from rdq_core.domain.text import TRUNCATION_MARKER, truncate


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def raised(exception: BaseException) -> BaseException:
    try:
        raise exception  # noqa: TRY301 - it shall have a traceback
    except BaseException as caught:  # noqa: BLE001 - the point
        return caught


def test_an_exception_gives_its_full_type_name_message_and_stack() -> None:
    error = error_from(raised(KeyError("order")))
    assert (error.type, error.message, error.code) == ("KeyError", "'order'", "task_failed")
    assert "in raised" in str(error.stack)


def test_a_class_of_the_application_is_named_with_its_module() -> None:
    assert error_from(Unprintable()).type == f"{__name__}.Unprintable"


def test_an_exception_whose_text_raises_still_yields_an_error() -> None:
    assert error_from(raised(Unprintable())).message == "(no message: __str__ raised RuntimeError)"


def test_circular_causes_still_yield_an_error() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert "ValueError: a" in str(error_from(raised(first)).stack)


def test_ten_megabytes_of_text_are_cut_inside_the_limit_with_a_marker() -> None:
    error = error_from(raised(ValueError("é" * 5_000_000)))
    message, stack = str(error.message), str(error.stack)
    assert MAX_MESSAGE_BYTES - 1 <= len(message.encode()) <= MAX_MESSAGE_BYTES
    assert len(stack.encode()) <= MAX_STACK_BYTES
    assert message.endswith(TRUNCATION_MARKER)


def test_nul_and_lone_surrogates_are_replaced() -> None:
    assert error_from(ValueError("a\0b\ud800c")).message == "a\ufffdb\ufffdc"


def test_of_a_base_exception_only_the_type_is_kept() -> None:
    error = error_from(raised(SystemExit("secret")))
    assert (error.type, error.code, error.message) == (
        "rdq.HandlerCrashed",
        Code.HANDLER_PANICKED,
        "the handler raised SystemExit",
    )
    assert "secret" not in str(error)


def test_no_traceback_is_kept() -> None:
    exception = raised(Unprintable())
    reference = weakref.ref(exception)
    error = error_from(exception)
    del exception
    gc.collect()
    assert reference() is None
    assert isinstance(error, AttemptError)


@pytest.mark.parametrize("code", ["", "Bad", "1x", "x" * 129, "a b"])
def test_a_code_of_another_form_becomes_task_failed(code: str) -> None:
    assert error_from(ValueError(), code=code).code == "task_failed"


@pytest.mark.parametrize(
    ("detail", "kept"),
    [
        ({"a": 1}, {"a": 1}),
        ({1, 2}, {"dropped": "not JSON"}),
        (float("nan"), {"dropped": "not JSON"}),
        ("x" * 5000, {"dropped": "too large", "bytes": 5002}),
    ],
)
def test_detail_is_kept_when_it_is_json_within_its_bound(detail: object, kept: object) -> None:
    assert error_from(ValueError(), detail=detail).detail == kept


def test_rdqs_own_errors_have_the_type_of_their_code_and_no_stack() -> None:
    error = own_error(Code.TIMEOUT, "late")
    assert (error.type, error.code, error.stack) == ("rdq.Timeout", "task_timeout", None)


@pytest.mark.parametrize("limit", [20, 21, 22, 23])
def test_truncation_never_splits_a_character(limit: int) -> None:
    short = truncate("é€😀" * 20, limit)
    assert len(short.encode()) <= limit
    assert "\ufffd" not in short


def test_text_within_its_limit_is_left_alone() -> None:
    assert truncate("é" * 10, 20) == "é" * 10
