"""Taking back: what there is to take back, what it would change, and doing it."""

from holdfast.config.server import Role
from holdfast.console.site import Site
from holdfast.console.take_back import Plan, choices, make_plan
from holdfast.console.visits import Answer, Page, Redirect, View, Visit
from holdfast.errors import HoldfastError, TableNotFound
from holdfast.server.errors import public_text, status_of


def takeback(site: Site, visit: Visit) -> Answer:
    return _show(site, visit, visit.query.get("act", ""), visit.query.get("to", ""))


def take_back(site: Site, visit: Visit) -> Answer:
    act, to = visit.form.get("act", ""), visit.form.get("to", "")
    plan = make_plan(site, visit, act, to)
    if visit.form.get("confirm", "").strip() != visit.table:
        return _plan_page(site, visit, plan, to, "Type the name of the table to confirm.", status=400)
    if visit.form.get("digest") != plan.digest:
        return _plan_page(
            site, visit, plan, to, "The table changed meanwhile, and nothing was done. This is the plan now.",
            status=409,
        )  # fmt: skip
    if plan.blocked_by or not plan.does_something:
        return _plan_page(site, visit, plan, to, plan.blocked_by or "There is nothing to do.", status=409)
    if plan.empties_all and visit.form.get("to_empty") != "yes":
        return _plan_page(
            site, visit, plan, to, "Queries would see no rows at all: say that they may.", status=400
        )
    task = site.tasks.start(
        plan.title, table=visit.table, actor=visit.principal.name, command=plan.command, act=plan.run
    )
    return Redirect(f"/console/task/{task.id}")


def _show(site: Site, visit: Visit, act: str, to: str) -> Answer:
    if not list(site.kinds(visit.table)):
        raise TableNotFound("no table has this name", table=visit.table)
    if not act:
        return _page(site, visit, None, to, "")
    try:
        plan = make_plan(site, visit, act, to)
    except HoldfastError as error:
        # What stands in the way is what somebody came to find out.
        return _page(site, visit, None, to, public_text(error), status=status_of(error, is_precise=True))
    return _page(site, visit, plan, to, "")


def _plan_page(site: Site, visit: Visit, plan: Plan, to: str, failure: str, *, status: int) -> View:
    return _page(site, visit, plan, to, failure, status=status)


def _page(site: Site, visit: Visit, plan: Plan | None, to: str, failure: str, *, status: int = 200) -> View:
    values = {
        "plan": None if plan is None else plan.fields,
        "choices": choices(site, visit),
        "to": to,
        "failure": failure,
        "may": visit.may(Role.OPERATE),
    }
    return View(
        template="takeback.html", title=f"{visit.table}: take back", values=values, status=status,
        drawn={"blocks": () if plan is None else plan.shown.blocks},
    )  # fmt: skip


PAGES = (
    Page(method="GET", path="/console/table/{table}/takeback", name="takeback", handle=takeback),
    Page(
        method="POST", path="/console/table/{table}/takeback", name="take_back", handle=take_back,
        role=Role.OPERATE,
    ),
)  # fmt: skip
