"""`holdfast serve` with a broker that does not switch: it shows for ever what it showed second.

It announces every switch all the same, so nothing but the answers to queries tells.
"""

from types import MappingProxyType

from holdfast.cli.main import main
from holdfast.push.queries.routing import Lease, Router, RoutingSnapshot

_SHOWN = 2

_seen: dict[str, list[RoutingSnapshot]] = {}
_lease = Router.lease


def _lease_frozen(self: Router, tables, **options) -> Lease:
    lease = _lease(self, tables, **options)
    lease.snapshots = MappingProxyType({name: _freeze(one) for name, one in lease.snapshots.items()})
    return lease


def _freeze(snapshot: RoutingSnapshot) -> RoutingSnapshot:
    seen = _seen.setdefault(snapshot.table, [])
    is_news = bool(snapshot.segments) and snapshot.segments not in [one.segments for one in seen]
    if is_news and len(seen) < _SHOWN:
        seen.append(snapshot)
    return seen[-1] if seen else snapshot


Router.lease = _lease_frozen

if __name__ == "__main__":
    main()
