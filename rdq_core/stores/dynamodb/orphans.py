"""Orphans: items and objects that outlived their task. The stream's clean-up deletes most of them
at once, and a search finds the rest.

    clean_up, per record of the tasks table's stream
        row of a life removed (TTL, purge, forget) or replaced by another life
            └► its attempt records, and its body, result and references that never expire
        body or result removed whose content is in S3 and never expires
            └► that content

    collect_orphans, page by page
        attempt record        its life is gone and it is over 48 hours old, or the row's history has
                              another record of its number
        dead-letter entry     its life is gone and it is over 48 hours old
        unexpiring body       the row does not name it: it lost its end after a row had named it,
                              and is never named again
        unexpiring result     neither the row nor its present holder names it
        unexpiring object     over 48 hours old, and neither the row nor its present holder names
                              its body or result

The invariant: a life that is gone never comes back, and nothing is deleted but what a consistent
read of the row, after the item was seen, shows to be an orphan. So a record that comes twice, late
or out of order does no harm.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.domain.lease import claim_id_of
from rdq_core.engine.ports import OrphanKind, OrphanReport
from rdq_core.errors import CorruptItem
from rdq_core.stores.dynamodb.access import Access, key
from rdq_core.stores.dynamodb.claim_check import IN_S3, UNEXPIRING, is_content_of, task_of
from rdq_core.stores.dynamodb.expressions import IS_OF_SEEN_LIFE, all_of
from rdq_core.stores.dynamodb.history import attempt_no_of, previous_of
from rdq_core.stores.dynamodb.schema import (
    ATTEMPT_PREFIX,
    BODY_PREFIX,
    ENTRY,
    RESULT_PREFIX,
    STATE,
    Attr,
)
from rdq_core.stores.dynamodb.sender import ConditionFailed
from rdq_core.stores.dynamodb.state_row import StateRow, maybe_row
from rdq_core.stores.dynamodb.values import Item, Reader, Value, text, text_of

OLD_ENOUGH: Final = timedelta(hours=48)
_PAGE: Final = 500
_RECORDS, _BODIES, _OBJECTS = "records", "bodies", "objects"
_RECORD_PARTS: Final = "#task_id, #kind, #life, #previous, #put_at, #dead_at"
_UNEXPIRING_ITEMS: Final = (
    "attribute_not_exists(#expires_at)"
    " AND (begins_with(#kind, :body) OR begins_with(#kind, :result))"
)


# -- what a row still needs ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _PresentTask:
    """The task that has an id now. `row` is None when there is none, or when it cannot be read:
    then it proves nothing, and everything may be needed.
    """

    is_gone: bool
    row: StateRow | None

    @classmethod
    def of(cls, access: Access, task_id: str) -> "_PresentTask":
        """Read consistently, after the item in question was seen."""
        item = access.sender.get(access.tables.tasks, key(task_id, STATE))
        return cls(item is None, maybe_row(item))

    def may_be_in(self, life: str) -> bool:
        """Whether the task may be in this life."""
        return self.row.life == life if self.row is not None else not self.is_gone

    def may_need(self, kind: str) -> bool:
        """Whether the row names the body or result of this kind, or its present holder may yet."""
        return kind in self._named() if self.row is not None else not self.is_gone

    def may_need_object(self, s3_key: str) -> bool:
        """The same of an object with the content of a body or result."""
        if self.row is None:
            return not self.is_gone
        return any(is_content_of(s3_key, kind.partition("#")[2]) for kind in self._named())

    def _named(self) -> set[str]:
        row = self.row
        if row is None:
            return set()
        named = set() if row.body_ref is None else {f"{BODY_PREFIX}{row.body_ref}"}
        # A result is put under its claim's name before the row names it; the claim is over when its
        # token has gone from the row.
        holder = None if row.token is None else claim_id_of(row.token)
        results = (row.result_ref, holder, holder and f"{IN_S3}{holder}")
        return named | {f"{RESULT_PREFIX}{ref}" for ref in results if ref is not None}


class OrphanVerbs:
    """The verbs of `Orphans`."""

    def __init__(self, access: Access) -> None:
        self._access = access

    # -- behind the stream -------------------------------------------------------------------------

    def clean_up(self, record: Mapping[str, Any]) -> None:
        """See `Orphans.clean_up`. `record` is as DynamoDB sends it, with both images."""
        images = record.get("dynamodb", {})
        old, new = images.get("OldImage") or {}, images.get("NewImage") or {}
        life = text_of(old, Attr.LIFE)
        if text_of(old, Attr.KIND) != STATE:
            # Removed by us or by TTL: it was the only item that named its object.
            if not new:
                self._clean_up_object(text_of(old, Attr.S3_KEY) or "")
        elif life is not None and life != text_of(new, Attr.LIFE):
            self._clean_up_life(old, life)

    def _clean_up_life(self, old: Mapping[str, Any], life: str) -> None:
        task_id = str(text_of(old, Attr.TASK_ID))
        if _PresentTask.of(self._access, task_id).may_be_in(life):
            return
        self._access.history.discard_life(task_id, life)
        # TTL removes what has an end for nothing; deleting it is billed by its whole size.
        body = None if Attr.BODY_ENDS_AT in old else text_of(old, Attr.BODY_REF)
        result = None if Attr.EXPIRES_AT in old else text_of(old, Attr.RESULT_REF)
        self._access.bodies.discard(task_id, bodies=(body,), results=(result,))
        if Attr.REFERENCES_END_AT not in old:
            digests = (text_of(old, Attr.REFERENCES) or "").split()
            self._access.references.discard(task_id, life, digests)

    def _clean_up_object(self, s3_key: str) -> None:
        objects = self._access.bodies.objects
        if objects is None or not s3_key.startswith(f"{UNEXPIRING}/"):
            return
        if not _PresentTask.of(self._access, task_of(s3_key)).may_need_object(s3_key):
            objects.delete(s3_key)

    # -- searching ---------------------------------------------------------------------------------

    def collect_orphans(self, *, after: Any = None, dry_run: bool) -> OrphanReport:
        """See `Orphans.collect_orphans`. `next` is plain JSON data."""
        where, start = after or (_RECORDS, None)
        page = _Page()
        match where:
            case "records":
                following = self._search_records(page, start) or [_BODIES, None]
            case "bodies":
                following = self._search_bodies(page, start) or [_OBJECTS, None]
            case _:
                following = self._search_objects(page, start)
        counts = Counter(kind for kind, _ in page.orphans)
        removed = Counter[OrphanKind]() if dry_run else self._remove(page.orphans)
        return OrphanReport(page.examined, counts, removed, following)

    def _search_records(self, page: "_Page", start: Any) -> Any:
        request = {"TableName": self._access.tables.dlq, "ProjectionExpression": _RECORD_PARTS}
        items, following = self._scan(request, {}, start)
        newest = self._access.clock.now() - OLD_ENOUGH
        for task_id, own in _by_task(items).items():
            records = _RecordsOfTask(self._access, task_id, own, newest)
            for item in own:
                kind = OrphanKind.ENTRY if item[Attr.KIND]["S"] == ENTRY else OrphanKind.ATTEMPT
                page.add(kind, item, is_orphan=records.is_orphan(item))
        return None if following is None else [_RECORDS, following]

    def _search_bodies(self, page: "_Page", start: Any) -> Any:
        request = {
            "TableName": self._access.tables.tasks,
            "FilterExpression": _UNEXPIRING_ITEMS,
            "ProjectionExpression": "#task_id, #kind",
        }
        prefixes = {":body": text(BODY_PREFIX), ":result": text(RESULT_PREFIX)}
        items, following = self._scan(request, prefixes, start)
        for task_id, own in _by_task(items).items():
            task = _PresentTask.of(self._access, task_id)
            for item in own:
                stored_kind = item[Attr.KIND]["S"]
                kind = OrphanKind.BODY if stored_kind.startswith(BODY_PREFIX) else OrphanKind.RESULT
                page.add(kind, item, is_orphan=not task.may_need(stored_kind))
        return None if following is None else [_BODIES, following]

    def _search_objects(self, page: "_Page", start: Any) -> Any:
        objects = self._access.bodies.objects
        if objects is None:
            return None
        listed = objects.unexpiring(after=start, limit=_PAGE)
        newest = self._access.clock.now() - OLD_ENOUGH
        for s3_key, put_at in listed:
            # A younger object may be of a submit whose row is not written yet.
            is_orphan = put_at <= newest and not _PresentTask.of(
                self._access, task_of(s3_key)
            ).may_need_object(s3_key)
            page.add(OrphanKind.OBJECT, {Attr.S3_KEY: text(s3_key)}, is_orphan=is_orphan)
        return [_OBJECTS, listed[-1][0]] if len(listed) == _PAGE else None

    def _scan(
        self, request: dict[str, Any], values: dict[str, Value], start: Any
    ) -> tuple[list[Item], Any]:
        request = {**request, "Limit": _PAGE} | (
            {} if start is None else {"ExclusiveStartKey": start}
        )
        answer = self._access.sender.scan(request, values)
        return answer["Items"], answer.get("LastEvaluatedKey")

    # -- removing ----------------------------------------------------------------------------------

    def _remove(self, orphans: list[tuple[OrphanKind, Item]]) -> Counter[OrphanKind]:
        attempts = [
            key(item[Attr.TASK_ID]["S"], item[Attr.KIND]["S"])
            for kind, item in orphans
            if kind is OrphanKind.ATTEMPT
        ]
        self._access.sender.delete_all(self._access.tables.dlq, attempts)
        return Counter(
            kind
            for kind, item in orphans
            if kind is OrphanKind.ATTEMPT or self._has_removed(kind, item)
        )

    def _has_removed(self, kind: OrphanKind, item: Item) -> bool:
        if kind is OrphanKind.OBJECT:
            if self._access.bodies.objects is not None:
                self._access.bodies.objects.delete(item[Attr.S3_KEY]["S"])
            return True
        if kind is OrphanKind.ENTRY:
            return self._has_removed_entry(item)
        ref = item[Attr.KIND]["S"].partition("#")[2]
        self._access.bodies.discard(
            item[Attr.TASK_ID]["S"],
            bodies=(ref,) if kind is OrphanKind.BODY else (),
            results=(ref,) if kind is OrphanKind.RESULT else (),
        )
        return True

    def _has_removed_entry(self, item: Item) -> bool:
        # Every life of a task has its entry under the same key.
        entry = key(item[Attr.TASK_ID]["S"], ENTRY)
        seen = {":seen_life": item[Attr.LIFE]}
        try:
            self._access.sender.delete(
                self._access.tables.dlq, entry, all_of(IS_OF_SEEN_LIFE), seen
            )
        except ConditionFailed:
            return False
        return True


@dataclass(slots=True)
class _Page:
    """What one page has shown: how many items of each kind, and the orphans among them."""

    examined: Counter[OrphanKind] = field(default_factory=Counter)
    orphans: list[tuple[OrphanKind, Item]] = field(default_factory=list)

    def add(self, kind: OrphanKind, item: Item, *, is_orphan: bool) -> None:
        """Count an item."""
        self.examined[kind] += 1
        if is_orphan:
            self.orphans.append((kind, item))


class _RecordsOfTask:
    """Decides on a page's records of one task, by one consistent read of the row and at most one of
    its history.
    """

    def __init__(
        self, access: Access, task_id: str, items: Iterable[Item], newest: datetime
    ) -> None:
        self._access = access
        self._newest = newest
        self._links = {item[Attr.KIND]["S"]: previous_of(item) for item in items}
        self._task = _PresentTask.of(access, task_id)
        self._history: frozenset[str] | None = None

    def is_orphan(self, item: Item) -> bool:
        """Whether this record or entry is proved to be an orphan."""
        life, kind = text_of(item, Attr.LIFE), item[Attr.KIND]["S"]
        if life is None:
            return False
        if not self._task.may_be_in(life):
            return self._is_old(item)
        return kind.startswith(ATTEMPT_PREFIX) and self._is_beside_history(kind)

    def _is_old(self, item: Item) -> bool:
        # A younger record may be a submit's, whose row is not written yet.
        put_at = Attr.PUT_AT if Attr.PUT_AT in item else Attr.DEAD_AT
        try:
            return Reader(item, "a record").moment(put_at) <= self._newest
        except CorruptItem:
            return False

    def _is_beside_history(self, kind: str) -> bool:
        """Whether the history has another record of this number. One with a higher number may be
        published yet.
        """
        row = self._task.row
        if row is None or attempt_no_of(kind) > row.history_length:
            return False
        self._history = self._history or self._access.history.keys(row, self._links)
        return self._history is not None and kind not in self._history


def _by_task(items: Iterable[Item]) -> dict[str, list[Item]]:
    tasks: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        tasks[item[Attr.TASK_ID]["S"]].append(item)
    return tasks
