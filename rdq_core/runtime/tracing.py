"""The current trace as a W3C `traceparent`: the attempts of a submitted task belong to it.

OpenTelemetry is used only if the application has loaded it; rdq never loads it.
"""

import os
import re
import sys
from collections.abc import Mapping
from typing import Final

from rdq_core.engine.context import current_delivery

_XRAY_VARIABLE: Final = "_X_AMZN_TRACE_ID"
"""Lambda sets it for each invocation."""
_XRAY_ROOT = re.compile("(?:^|;)Root=1-([0-9a-f]{8})-([0-9a-f]{24})(?:;|$)")
_XRAY_PARENT = re.compile("(?:^|;)Parent=([0-9a-f]{16})(?:;|$)")


def current_traceparent() -> str | None:
    """The current OpenTelemetry span's, else that of the task being delivered, else the Lambda
    invocation's X-Ray trace; None without any.
    """
    if (trace := sys.modules.get("opentelemetry.trace")) is not None:
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
    delivery = current_delivery.get()
    given = None if delivery is None else delivery.task.headers.get("traceparent")
    return given or of_xray(os.environ)


def of_xray(environ: Mapping[str, str]) -> str | None:
    """X-Ray's trace header as a `traceparent`: its trace id without dashes, the same parent."""
    header = environ.get(_XRAY_VARIABLE, "")
    root, parent = _XRAY_ROOT.search(header), _XRAY_PARENT.search(header)
    if root is None or parent is None:
        return None
    return f"00-{root[1]}{root[2]}-{parent[1]}-{'01' if 'Sampled=1' in header else '00'}"
