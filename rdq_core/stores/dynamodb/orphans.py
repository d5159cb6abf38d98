"""The search for what the stream missed: crashed writers' records, and whatever outlived its task.

Tables and bucket are looked through page by page, so memory doesn't grow with them. What is
nobody's:

    attempt record   its life is gone and it is over 48 hours old, or the row's history has another record of its number
    entry            its life is gone and it is over 48 hours old
    body without end     the row doesn't name it: it lost its end after a row had named it, and is never named again
    result without end   neither the row nor its present holder names it
    object that no rule expires   over 48 hours old, and neither the row nor its present holder names its body or result
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.engine.ports import Kind, OrphanReport
from rdq_core.errors import CorruptItem
from rdq_core.stores.dynamodb.access import Access, key
from rdq_core.stores.dynamodb.claim_check import task_of
from rdq_core.stores.dynamodb.expressions import IS_OF_SEEN_LIFE, all_of
from rdq_core.stores.dynamodb.history import previous_of
from rdq_core.stores.dynamodb.owner import owner_of, text_of
from rdq_core.stores.dynamodb.records import number_of
from rdq_core.stores.dynamodb.schema import ATTEMPT_PREFIX, BODY_PREFIX, ENTRY, RESULT_PREFIX, Attr
from rdq_core.stores.dynamodb.transact import ConditionFailed
from rdq_core.stores.dynamodb.values import Item, Reader, Value, text

OLD_ENOUGH: Final = timedelta(hours=48)
_PAGE: Final = 500
_RECORDS, _BODIES, _OBJECTS = "records", "bodies", "objects"
_RECORD_PARTS: Final = "#task_id, #kind, #life, #previous, #put_at, #dead_at"
_LASTING: Final = "attribute_not_exists(#expires_at) AND (begins_with(#kind, :body) OR begins_with(#kind, :result))"


@dataclass(slots=True)
class _Page:
    """What one page has shown: how many of each kind there were, and those that are nobody's."""

    examined: Counter[Kind] = field(default_factory=Counter)
    found: list[tuple[Kind, Item]] = field(default_factory=list)

    def note(self, kind: Kind, item: Item, *, is_nobodys: bool) -> None:
        """Count one of them."""
        self.examined[kind] += 1
        if is_nobodys:
            self.found.append((kind, item))


class Searching:
    """The verb of whoever looks for remains."""

    _access: Access

    def collect_orphans(self, *, after: Any = None, dry_run: bool) -> OrphanReport:
        """See `Orphans.collect_orphans`. `next` is plain JSON data."""
        place, start = after or (_RECORDS, None)
        page = _Page()
        match place:
            case "records":
                handle = self._look_at_records(page, start) or [_BODIES, None]
            case "bodies":
                handle = self._look_at_bodies(page, start) or [_OBJECTS, None]
            case _:
                handle = self._look_at_objects(page, start)
        found = Counter(kind for kind, _ in page.found)
        removed = Counter[Kind]() if dry_run else self._removed(page.found)
        return OrphanReport(page.examined, found, removed, handle)

    # -- looking -----------------------------------------------------------------------------------

    def _look_at_records(self, page: _Page, start: Any) -> Any:
        request = {"TableName": self._access.tables.dlq, "ProjectionExpression": _RECORD_PARTS}
        items, then = self._scanned(request, {}, start)
        newest = self._access.clock.now() - OLD_ENOUGH
        for task_id, own in _by_task(items).items():
            judge = _Judge(self._access, task_id, own, newest)
            for item in own:
                kind = Kind.ENTRY if item[Attr.KIND]["S"] == ENTRY else Kind.ATTEMPT
                page.note(kind, item, is_nobodys=judge.condemns(item))
        return None if then is None else [_RECORDS, then]

    def _look_at_bodies(self, page: _Page, start: Any) -> Any:
        request = {
            "TableName": self._access.tables.tasks,
            "FilterExpression": _LASTING,
            "ProjectionExpression": "#task_id, #kind",
        }
        items, then = self._scanned(
            request, {":body": text(BODY_PREFIX), ":result": text(RESULT_PREFIX)}, start
        )
        for task_id, own in _by_task(items).items():
            owner = owner_of(self._access, task_id)
            for item in own:
                kind = Kind.BODY if item[Attr.KIND]["S"].startswith(BODY_PREFIX) else Kind.RESULT
                page.note(kind, item, is_nobodys=not owner.may_want(item[Attr.KIND]["S"]))
        return None if then is None else [_BODIES, then]

    def _look_at_objects(self, page: _Page, start: Any) -> Any:
        objects = self._access.bodies.objects
        if objects is None:
            return None
        listed = objects.lasting(after=start, limit=_PAGE)
        newest = self._access.clock.now() - OLD_ENOUGH
        for s3_key, put_at in listed:
            is_nobodys = put_at <= newest and not owner_of(
                self._access, task_of(s3_key)
            ).may_want_object(s3_key)
            page.note(Kind.OBJECT, {Attr.S3_KEY: text(s3_key)}, is_nobodys=is_nobodys)
        return [_OBJECTS, listed[-1][0]] if len(listed) == _PAGE else None

    def _scanned(
        self, request: dict[str, Any], values: dict[str, Value], start: Any
    ) -> tuple[list[Item], Any]:
        request = {**request, "Limit": _PAGE} | (
            {} if start is None else {"ExclusiveStartKey": start}
        )
        answer = self._access.sender.scan(request, values)
        return answer["Items"], answer.get("LastEvaluatedKey")

    # -- removing ----------------------------------------------------------------------------------

    def _removed(self, found: list[tuple[Kind, Item]]) -> Counter[Kind]:
        attempts = [
            key(item[Attr.TASK_ID]["S"], item[Attr.KIND]["S"])
            for kind, item in found
            if kind is Kind.ATTEMPT
        ]
        self._access.sender.delete_all(self._access.tables.dlq, attempts)
        return Counter(
            kind for kind, item in found if kind is Kind.ATTEMPT or self._has_removed(kind, item)
        )

    def _has_removed(self, kind: Kind, item: Item) -> bool:
        if kind is Kind.OBJECT:
            if self._access.bodies.objects is not None:
                self._access.bodies.objects.delete(item[Attr.S3_KEY]["S"])
            return True
        if kind is Kind.ENTRY:
            return self._has_removed_entry(item)
        ref = item[Attr.KIND]["S"].partition("#")[2]
        self._access.bodies.discard(
            item[Attr.TASK_ID]["S"],
            bodies=(ref,) if kind is Kind.BODY else (),
            results=(ref,) if kind is Kind.RESULT else (),
        )
        return True

    def _has_removed_entry(self, item: Item) -> bool:
        entry = key(item[Attr.TASK_ID]["S"], ENTRY)
        seen = {":seen_life": item[Attr.LIFE]}
        try:
            self._access.sender.delete(
                self._access.tables.dlq, entry, all_of(IS_OF_SEEN_LIFE), seen
            )
        except ConditionFailed:
            return False
        return True


class _Judge:
    """Decides on the records of one task, by one consistent read of its row and at most one of its
    history.
    """

    def __init__(
        self, access: Access, task_id: str, items: Iterable[Item], newest: datetime
    ) -> None:
        self._access = access
        self._newest = newest
        self._links = {item[Attr.KIND]["S"]: previous_of(item) for item in items}
        self._owner = owner_of(access, task_id)
        self._chain: frozenset[str] | None = None

    def condemns(self, item: Item) -> bool:
        """Whether this record or entry is proved to be nobody's."""
        life, kind = text_of(item, Attr.LIFE), item[Attr.KIND]["S"]
        if life is None:
            return False
        if not self._owner.may_be_of(life):
            return self._is_old(item)
        return kind.startswith(ATTEMPT_PREFIX) and self._is_beside_history(kind)

    def _is_old(self, item: Item) -> bool:
        try:
            return (
                Reader(item, "a record").moment(
                    Attr.PUT_AT if Attr.PUT_AT in item else Attr.DEAD_AT
                )
                <= self._newest
            )
        except CorruptItem:
            return False

    def _is_beside_history(self, kind: str) -> bool:
        """Whether the history has another record of this number. A record of a number to come may
        be published yet.
        """
        row = self._owner.row
        if row is None or number_of(kind) > row.history_length:
            return False
        self._chain = self._chain or self._access.history.keys(row, self._links)
        return self._chain is not None and kind not in self._chain


def _by_task(items: Iterable[Item]) -> dict[str, list[Item]]:
    tasks: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        tasks[item[Attr.TASK_ID]["S"]].append(item)
    return tasks
