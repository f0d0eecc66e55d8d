"""Files that are refused, whatever they describe."""

import pytest

from holdfast.errors import InvalidOption


@pytest.fixture
def refused(load):
    """What a text is refused with by the module's own `load`: the error, its line and its key."""

    def refused(text):
        with pytest.raises(InvalidOption) as caught:
            load(text)
        facts = caught.value.facts
        assert str(facts["file"]).endswith(".yaml")
        return caught.value, facts["line"], facts["key"]

    return refused
