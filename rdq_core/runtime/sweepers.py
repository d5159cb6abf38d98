"""The sweeper of a process, built from its parts.

Hosts that run tasks import this: asyncio and what else running handlers needs is loaded here, and
never by a process that only submits.
"""

from collections.abc import Sequence

from rdq_core.config.settings import Host
from rdq_core.engine.auditor import Principal
from rdq_core.engine.claims import Claimer
from rdq_core.engine.effective_settings import EffectiveSettings
from rdq_core.engine.ports import HandlerSource
from rdq_core.engine.reconcile import Reconcilers
from rdq_core.engine.renewals import Renewals
from rdq_core.engine.resolve import Resolver
from rdq_core.engine.routing import Router
from rdq_core.engine.run import Runner, RunParts
from rdq_core.engine.sweep import Sweeper, SweepParts
from rdq_core.errors import InputInvalid
from rdq_core.ops.background_jobs import BackgroundJobs
from rdq_core.runtime.wiring import Parts


def build_sweeper(
    parts: Parts,
    handlers: HandlerSource,
    *,
    serves: Sequence[str],
    worker: str,
    host: Host = Host.WORKER,
    rdq: object | None = None,
    awake: bool = False,
) -> Sweeper:
    """A sweeper that runs due tasks of the queues that it `serves`; attempt records name `worker`.

    `rdq` is this process's `Rdq`, which the handlers' reconcilers get; raises InputInvalid when
    they need one and there is none, since they would silently repair nothing. With `awake` the
    sweeper announces its presence while it runs, so that no other is started in vain.
    """
    if handlers.repairs and rdq is None:
        raise InputInvalid(
            "rdq", "the registry has reconcilers, and this host gives them no Rdq to work with"
        )
    router = Router(handlers, None if parts.invoker is None else parts.invoker())
    resolver = Resolver(
        parts.store, clock=parts.clock, jitter=parts.jitter, events=parts.events, worker=worker
    )
    run_parts = RunParts(
        store=parts.store,
        router=router,
        resolver=resolver,
        clock=parts.clock,
        sleeper=parts.busy,
        on_error=parts.on_error,
    )
    return Sweeper(
        SweepParts(
            store=parts.store,
            effective_settings=EffectiveSettings(parts.queues, handlers, parts.on_error),
            router=router,
            claimer=Claimer(
                parts.store,
                router,
                clock=parts.clock,
                ids=parts.ids,
                events=parts.events,
                jitter=parts.jitter,
            ),
            runner=Runner(run_parts),
            limiter=parts.limiter,
            reconcilers=Reconcilers(
                [repair.by(rdq) for repair in handlers.repairs],
                clock=parts.clock,
                sleeper=parts.busy,
                on_error=parts.on_error,
            ),
            removals=parts.removals(parts.auditor(Principal(f"rdq on {worker}"))),
            renewals=Renewals(
                parts.store, clock=parts.clock, jitter=parts.jitter, on_error=parts.on_error
            ),
            serves=tuple(serves),
            host=host,
            clock=parts.clock,
            jitter=parts.jitter,
            idle=parts.idle,
            busy=parts.busy,
            on_error=parts.on_error,
            reservations=parts.reservations if awake else None,
            background_work=BackgroundJobs(parts),
        )
    )
