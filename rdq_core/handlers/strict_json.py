"""JSON of exactly one type: what a typed task takes and gives.

Text is no number and a number no text; missing fields, trailing data, NaN and numbers beyond any
float are refused, and so are unknown fields, however deep, unless a reader is told to let them
pass.
"""

from typing import Any, Literal

from rdq_core.handlers.decoding import adapter_of, misfit, name_of, read_json
from rdq_core.handlers.encoding import encode_json, refuse_lost_numbers


class StrictJson:
    """The JSON of one annotation, its schema built once. ConfigInvalid, naming `path`, when there
    can be none.
    """

    def __init__(self, path: str, annotation: Any) -> None:
        self._name = name_of(annotation)
        self._adapter = adapter_of(path, annotation)

    def encode(self, value: object) -> bytes:
        """The value as JSON that `decode` reads. ValueError, with words for an error's message, if
        there is none.
        """
        from pydantic_core import PydanticSerializationError

        try:
            data = self._adapter.dump_python(value, mode="json", by_alias=True, warnings=False)
        except (PydanticSerializationError, UnicodeDecodeError, RecursionError, AttributeError):
            raise ValueError(
                f"does not fit {self._name}: a {type(value).__name__} with no JSON form"
            ) from None
        content = encode_json(data)
        if b"null" in content:
            refuse_lost_numbers(value, data)
        self.decode(content)
        return content

    def decode(
        self, content: bytes, *, unknown_fields: Literal["refuse", "let pass"] = "refuse"
    ) -> Any:
        """The value of JSON bytes. ValueError, with words for an error's message, when they don't
        fit.
        """
        from pydantic import ValidationError

        read_json(content)  # pydantic would let NaN and infinities pass
        try:
            return self._adapter.validate_json(
                content, strict=True, extra="forbid" if unknown_fields == "refuse" else None
            )
        except ValidationError as problem:
            raise ValueError(misfit(problem, self._name)) from None
