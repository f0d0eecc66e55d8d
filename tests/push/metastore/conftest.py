import pytest

pytest.register_assert_rewrite("push.metastore.promises", "push.metastore.agreement")
