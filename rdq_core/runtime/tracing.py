"""The current trace as a W3C `traceparent`, so that a task's attempts belong to its submitter's.

OpenTelemetry is used if the application has imported it; rdq never imports it.
"""

import os
import re
import sys
from collections.abc import Mapping
from typing import Final

from rdq_core.engine.context import current_delivery

_XRAY_VARIABLE: Final = "_X_AMZN_TRACE_ID"
"""Set by Lambda for each invocation."""
_XRAY_ROOT = re.compile("(?:^|;)Root=1-([0-9a-f]{8})-([0-9a-f]{24})(?:;|$)")
_XRAY_PARENT = re.compile("(?:^|;)Parent=([0-9a-f]{16})(?:;|$)")


def current_traceparent() -> str | None:
    """The current span's, else the one of the task being delivered, else the Lambda invocation's
    X-Ray trace; None if there is none.
    """
    return _of_open_telemetry() or _of_delivery() or of_xray(os.environ)


def _of_open_telemetry() -> str | None:
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    span = trace.get_current_span().get_span_context()
    return (
        f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
        if span.is_valid
        else None
    )


def _of_delivery() -> str | None:
    delivery = current_delivery()
    return None if delivery is None else delivery.task.headers.get("traceparent")


def of_xray(environ: Mapping[str, str]) -> str | None:
    """The X-Ray trace as a `traceparent`: the same trace id without dashes, the same parent."""
    header = environ.get(_XRAY_VARIABLE, "")
    root, parent = _XRAY_ROOT.search(header), _XRAY_PARENT.search(header)
    if root is None or parent is None:
        return None
    return f"00-{root[1]}{root[2]}-{parent[1]}-{'01' if 'Sampled=1' in header else '00'}"
