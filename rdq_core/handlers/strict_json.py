"""JSON of exactly one type: the input and output of typed tasks.

No value is converted: text isn't accepted as a number, nor a number as text. Missing fields,
trailing data, NaN and numbers that no float can hold are refused; unknown fields too, at any depth,
unless the reader ignores them.
"""

from typing import Any, Literal

from rdq_core.handlers.decoding import adapter_of, misfit, name_of, read_json
from rdq_core.handlers.encoding import encode_json, refuse_lost_numbers


class StrictJson:
    """Reads and writes the JSON of one annotation.

    Raises ConfigInvalid, naming `path`, for a type without a JSON form.
    """

    def __init__(self, path: str, annotation: Any) -> None:
        self._name = name_of(annotation)
        self._adapter = adapter_of(path, annotation)

    def encode(self, value: object) -> bytes:
        """The value as JSON that `decode` accepts.

        Raises ValueError, with the predicate of an error message, when there is none.
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
        self, content: bytes, *, unknown_fields: Literal["refuse", "ignore"] = "refuse"
    ) -> Any:
        """The value of JSON bytes.

        Raises ValueError, with the predicate of an error message, when they don't fit.
        """
        from pydantic import ValidationError

        read_json(content)  # pydantic accepts NaN and infinities
        try:
            return self._adapter.validate_json(
                content, strict=True, extra="forbid" if unknown_fields == "refuse" else None
            )
        except ValidationError as problem:
            raise ValueError(misfit(problem, self._name)) from None
