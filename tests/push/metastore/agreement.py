"""Random histories: two metastores given the same changes must say and keep the same."""

from hypothesis import strategies as st

from holdfast.errors import InvalidRequest, LineageChanged
from holdfast.push.metastore.port import Check, Create, Remove, Replace

PATHS = ("/a", "/b", "/f/a", "/f/b", "/f/g/c")
KINDS = ("create", "replace", "remove", "check", "check_absent")
CHANGE = st.tuples(
    st.sampled_from(KINDS),
    st.sampled_from(PATHS),
    st.binary(min_size=1, max_size=3),
    st.sampled_from(("current", "current", "current", "former", "next")),
)
HISTORIES = st.lists(st.lists(CHANGE, max_size=4), max_size=12)


class Follower:
    """One store, and the versions it gave; they differ between stores, so changes name them by age."""

    def __init__(self, store):
        self.store = store
        self.former = {}

    def write(self, changes):
        before = dict(zip(PATHS, self.store.read_all(PATHS), strict=True))
        try:
            self.store.write([self._change(change, before) for change in changes])
        except (LineageChanged, InvalidRequest) as error:
            return type(error)
        for path, record in before.items():
            if record is not None:
                self.former[path] = record.version
        return None

    def content(self):
        data = [record and record.data for record in self.store.read_all(PATHS)]
        below = {path: self.store.children(path) for path in ("/f", "/f/a", "/x")}
        direct = {name: record.data for name, record in self.store.read_children("/f").items()}
        return data, below["/f/a"], below["/x"], direct

    def _change(self, change, before):
        kind, path, data, age = change
        version = self._version(path, before[path], age)
        match kind:
            case "create":
                return Create(path, data)
            case "replace":
                return Replace(path, data, version)
            case "remove":
                return Remove(path, version)
            case "check":
                return Check(path, version)
            case _:
                return Check(path, None)

    def _version(self, path, record, age):
        current = 0 if record is None else record.version
        if age == "current":
            return current
        former = self.former.get(path)
        return former if age == "former" and former not in (None, current) else current + 1000


def assert_agreement(one, other, history):
    followers = [Follower(one), Follower(other)]
    for changes in history:
        outcomes = [follower.write(changes) for follower in followers]
        assert outcomes[0] == outcomes[1]
        assert followers[0].content() == followers[1].content()
