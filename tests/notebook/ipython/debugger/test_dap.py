import pytest

from notebook_accel.notebook.ipython.debugger import dap


def test_a_number_of_a_rank_becomes_one_of_the_front_end_and_back():
    body = {"stackFrames": [{"id": 3, "line": 7}], "variables": [{"name": "x", "variablesReference": 9}]}
    shown = dap.from_rank(body, 2)
    frame, reference = shown["stackFrames"][0]["id"], shown["variables"][0]["variablesReference"]
    assert shown["stackFrames"][0]["line"] == 7
    assert dap.session_of({"frameId": frame}) == dap.session_of({"variablesReference": reference}) == 2
    assert dap.to_rank({"frameId": frame, "expression": "x"}) == {"frameId": 3, "expression": "x"}
    assert dap.to_rank({"variablesReference": reference}) == {"variablesReference": 9}


@pytest.mark.parametrize("arguments", [{}, {"threadId": 1}, {"threadId": "*"}, {"variablesReference": 0}])
def test_other_requests_belong_to_the_kernel(arguments: dict[str, object]):
    assert dap.session_of(arguments) == 0


def test_a_value_without_parts_has_none_in_the_front_end():
    assert dap.from_rank({"result": "1", "variablesReference": 0}, 3) == {"result": "1", "variablesReference": 0}
