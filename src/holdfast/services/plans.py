"""Plans are values: what was shown is what is carried out, or the plan is refused as outdated."""

from collections.abc import Collection

from holdfast.errors import PlanOutdated


def refuse_beyond_plan(planned: Collection[str], now: Collection[str]) -> None:
    """`PlanOutdated` if something would be done now that was not planned. Less may be done."""
    beyond = sorted(set(now).difference(planned))
    if beyond:
        raise PlanOutdated(
            "the table changed after the plan was shown",
            first=beyond[0],
            count=len(beyond),
            hint="look at the plan again",
        )
