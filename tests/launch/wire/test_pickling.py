import dataclasses
import errno
import gc
import io
import json
import linecache
import pickle
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from notebook_accel.launch.wire.pickling import OUT_OF_BAND, CallPickler, ReturnPickler, load

LARGE = OUT_OF_BAND // 4
"""As many 4-byte numbers travel out of band."""
PICKLERS = [CallPickler, lambda: ReturnPickler(())]


@pytest.fixture(params=PICKLERS, ids=["call", "return"])
def pickler(request: pytest.FixtureRequest) -> Any:
    return request.param()


def there(pickler: Any, value: Any) -> Any:
    """The value as the other side has it, with memory of its own."""
    pickler.dump(value)
    (arrived,) = load(pickler.stream.getvalue(), [bytearray(buffer) for buffer in pickler.buffers])
    return arrived


def address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def test_a_function_may_use_modules_of_a_class_of_their_own(pickler: Any) -> None:
    settings = there(pickler, lambda: (torch.backends.cudnn, torch.backends.mps.is_available()))
    assert settings() == (torch.backends.cudnn, torch.backends.mps.is_available())


def test_a_function_may_have_a_class_whose_body_reads_globals(pickler: Any) -> None:
    namespace: dict[str, Any] = {"width": 3, "height": threading.Lock(), "__name__": "elsewhere"}
    body = "class Box:\n        size = width\n        height = 4\n        area = size * height\n"
    exec(f"def area():\n    {body}    return Box.area", namespace)  # a lock can't be pickled; it isn't read
    assert there(pickler, namespace["area"])() == 12


class Coded(ValueError):
    """Its `__init__` takes other arguments than it passes on."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} ({code})")
        self.code = code


@dataclasses.dataclass
class Described(Exception):
    code: int
    text: str


class AtFile(OSError):
    def __init__(self, path: str) -> None:
        super().__init__(errno.ENOENT, "gone", path)
        self.path = path


@pytest.mark.parametrize(
    ("raised", "attributes"),
    [
        (Coded(5, "boom"), {"code": 5, "args": ("boom (5)",)}),
        (Described(code=5, text="boom"), {"code": 5, "text": "boom"}),
        (AtFile("a"), {"path": "a", "filename": "a", "errno": errno.ENOENT}),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "why"), {"object": b"x", "reason": "why"}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_exception_has_what_its_own_init_has_set(
    pickler: Any, raised: Exception, attributes: dict[str, Any]
) -> None:
    arrived = there(pickler, raised)
    assert type(arrived) is type(raised)
    assert str(arrived) == str(raised)
    for name, value in attributes.items():
        assert repr(getattr(arrived, name)) == repr(value)


@pytest.mark.smoke
def test_code_keeps_its_file_and_its_lines(pickler: Any) -> None:
    text = """
class Model:
    def forward(self, x):
        return [each / x for each in range(3)]
    @property
    def size(self):
        return (lambda: 1)()
def numbers(n):
    yield from range(n)
    async def later():
        def inner(): return n
        return inner
"""
    namespace: dict[str, Any] = {"__name__": "elsewhere"}
    exec(compile(text, "a cell of a notebook", "exec"), namespace)
    model = namespace["Model"]
    sent = model.forward, model.size.fget, namespace["numbers"]
    arrived = there(pickler, sent)
    assert all(over_there.__code__ is not here.__code__ for over_there, here in zip(arrived, sent, strict=True))

    def places(*codes: types.CodeType) -> Iterator[tuple[Any, ...]]:
        for code in codes:
            yield code.co_name, code.co_filename, code.co_firstlineno, [*code.co_lines()]
            yield from places(*(each for each in code.co_consts if isinstance(each, types.CodeType)))

    found = [*places(*(each.__code__ for each in arrived))]
    assert found == [*places(*(each.__code__ for each in sent))]
    assert {filename for _, filename, *_ in found} == {"a cell of a notebook"}
    assert len(found) == (6 if sys.version_info >= (3, 12) else 7)  # 3.12 inlines comprehensions


# What is large stays out of the stream


@pytest.mark.parametrize("make", [np.zeros, torch.zeros], ids=["numpy", "torch"])
@pytest.mark.parametrize(("count", "buffers"), [(LARGE - 1, 0), (LARGE, 1), (100 * LARGE, 1)])
def test_large_buffers_stay_out_of_the_stream(pickler: Any, make: Callable[..., Any], count: int, buffers: int) -> None:
    dtype = np.float32 if make is np.zeros else torch.float32
    pickler.dump({"data": make(count, dtype=dtype)})
    assert [buffer.nbytes for buffer in pickler.buffers] == [4 * count] * buffers
    assert pickler.stream.tell() < 2000 + (0 if buffers else 4 * count)


def test_a_large_buffer_is_not_copied(pickler: Any) -> None:
    array, tensor = np.zeros(LARGE, np.float32), torch.zeros(LARGE)
    pickler.dump([array, tensor])
    array[7], tensor[7] = 1, 2
    assert [np.frombuffer(buffer, np.float32)[7] for buffer in pickler.buffers] == [1, 2]


def test_buffers_stay_alive_with_the_pickler(pickler: Any) -> None:
    class Fresh:
        def __reduce__(self) -> Any:
            return list, ([torch.full((LARGE,), 3.0), np.full(LARGE, 4.0, np.float32)],)

    pickler.dump(Fresh())
    gc.collect()
    noise = [torch.zeros(LARGE) for _ in range(20)]
    assert [np.frombuffer(buffer, np.float32)[-1] for buffer in pickler.buffers] == [3, 4]
    del noise


def test_a_buffer_that_is_used_twice_travels_once(pickler: Any) -> None:
    tensor = torch.zeros(LARGE)
    pickler.dump([tensor, tensor, tensor[3:], tensor.view(2, -1)])
    assert len(pickler.buffers) == 1


# Tensors


def square(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(-32, 32).to(dtype).reshape(8, 8)


DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.int64,
    torch.int8, torch.uint8, torch.uint16, torch.bool,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tensor_keeps_its_dtype_and_every_bit(pickler: Any, dtype: torch.dtype) -> None:
    arrived = there(pickler, square(dtype))
    assert arrived.dtype == dtype
    assert bytes(arrived.untyped_storage()) == bytes(square(dtype).untyped_storage())


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda t: t.T,
    "a column": lambda t: t[:, 3],
    "every other": lambda t: t[::2, 1::3],
    "expanded": lambda t: t[:1].expand(5, 8),
    "flipped twice": lambda t: t.flip(0).T,
    "channels last": lambda t: t.reshape(1, 4, 4, 4).to(memory_format=torch.channels_last),
    "a scalar": lambda t: t[2, 5],
    "an empty part": lambda t: t[3:3],
}


@pytest.mark.parametrize("view", LAYOUTS.values(), ids=LAYOUTS)
def test_a_tensor_keeps_its_layout(pickler: Any, view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    sent = view(square(torch.float32))
    arrived = there(pickler, sent)
    assert torch.equal(arrived, sent)
    assert arrived.stride() == sent.stride()
    assert arrived.storage_offset() == sent.storage_offset()


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0, 2)], ids=str)
def test_a_tensor_without_elements_keeps_its_shape(pickler: Any, shape: tuple[int, ...]) -> None:
    arrived = there(pickler, [torch.zeros(shape), torch.zeros(shape, dtype=torch.int8)])
    assert [(tensor.shape, tensor.dtype) for tensor in arrived] == [(shape, torch.float32), (shape, torch.int8)]


def test_a_complex_view_keeps_its_meaning(pickler: Any) -> None:
    tensor = torch.tensor([1 + 2j, 3 - 4j])
    assert torch.equal(there(pickler, [tensor.conj(), tensor.imag])[0], tensor.conj())


SPARSE: dict[str, Callable[[], torch.Tensor]] = {
    "coo": lambda: torch.eye(5).to_sparse(),
    "csr": lambda: torch.eye(5).to_sparse_csr(),
    "large": lambda: torch.ones(200, 200).to_sparse(),
}


@pytest.mark.filterwarnings("ignore:.*(Sparse|sparse).*:UserWarning")
@pytest.mark.parametrize("make", SPARSE.values(), ids=SPARSE)
def test_a_sparse_tensor_arrives(pickler: Any, make: Callable[[], torch.Tensor]) -> None:
    arrived = there(pickler, make())
    assert arrived.layout == make().layout
    assert torch.equal(arrived.to_dense(), make().to_dense())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_quantized_tensor_arrives(pickler: Any) -> None:
    sent = torch.quantize_per_tensor(torch.arange(9.0), 0.5, 3, torch.quint8)
    arrived = there(pickler, sent)
    assert (arrived.q_scale(), arrived.q_zero_point()) == (0.5, 3)
    assert torch.equal(arrived.int_repr(), sent.int_repr())


def test_a_tensor_without_data_arrives(pickler: Any) -> None:
    arrived = there(pickler, nn.Linear(3, 5, device="meta"))
    assert arrived.weight.is_meta
    assert arrived.weight.shape == (5, 3)


def test_gradients_are_asked_for_over_there_too(pickler: Any) -> None:
    leaf = torch.ones(3, requires_grad=True)
    parameter, frozen = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3), requires_grad=False)
    sent = [leaf, leaf * 2, parameter, frozen, torch.ones(3)]
    arrived = there(pickler, sent)
    assert [tensor.requires_grad for tensor in arrived] == [True, True, True, False, False]
    assert [type(tensor) for tensor in arrived] == [type(tensor) for tensor in sent]
    assert all(tensor.is_leaf for tensor in arrived)


def test_views_stay_views_of_one_another(pickler: Any) -> None:
    base = torch.zeros(4, 4)
    base, row, flat, other = there(pickler, [base, base[2], base.view(-1), torch.zeros(4, 4)])
    row += 1
    assert base[2].tolist() == [1.0] * 4
    assert flat[8:12].tolist() == [1.0] * 4
    assert other.sum() == 0


def test_tied_weights_stay_tied(pickler: Any) -> None:
    model = nn.Sequential(nn.Embedding(50, 400), nn.Linear(400, 50))
    model[1].weight = model[0].weight
    arrived = there(pickler, model)
    assert arrived[0].weight is arrived[1].weight
    assert isinstance(arrived[0].weight, nn.Parameter)
    assert len(pickler.buffers) == 1


def test_an_optimizer_keeps_hold_of_its_model(pickler: Any) -> None:
    model = nn.Linear(2, 2)
    model, optimizer = there(pickler, (model, torch.optim.SGD(model.parameters(), lr=1.0)))
    before = model.weight.detach().clone()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert not torch.equal(model.weight, before)


def test_tensors_over_parts_of_one_array_arrive_whole(pickler: Any) -> None:
    array = np.arange(10.0)
    head, whole, tail = there(pickler, [torch.from_numpy(part) for part in (array[:3], array, array[6:])])
    assert head.tolist() == [0, 1, 2]
    assert whole.tolist() == array.tolist()
    assert tail.tolist() == [6, 7, 8, 9]


@pytest.mark.parametrize("count", [3, LARGE])
def test_what_arrives_can_be_written_to(pickler: Any, count: int) -> None:
    sent = [torch.zeros(count), np.zeros(count, np.float32)]
    for arrived in there(pickler, sent):
        arrived[0] = 1
        assert arrived[0] == 1
    assert sent[0].sum() + sent[1].sum() == 0


def test_a_tensor_is_loaded_onto_the_buffer_itself(pickler: Any) -> None:
    pickler.dump([torch.zeros(LARGE), np.zeros(LARGE, np.float32)])
    buffers = [bytearray(buffer) for buffer in pickler.buffers]
    ((tensor, array),) = load(pickler.stream.getvalue(), buffers)
    tensor[5], array[6] = 1, 1
    assert buffers[0][20:24] == buffers[1][24:28] == np.float32(1).tobytes()


# Arrays

ARRAYS: dict[str, Callable[[], np.ndarray[Any, Any]]] = {
    "c order": lambda: np.arange(9.0).reshape(3, 3),
    "fortran order": lambda: np.asfortranarray(np.arange(9.0).reshape(3, 3)),
    "strided": lambda: np.arange(40.0)[::3],
    "reversed": lambda: np.arange(9.0)[::-1],
    "large, fortran": lambda: np.asfortranarray(np.ones((300, 300))),
    "large, strided": lambda: np.arange(2.0 * LARGE)[::2],
    "structured": lambda: np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    "strings": lambda: np.array(["a", "bcd"]),
    "objects": lambda: np.array([{"a": 1}, None], dtype=object),
    "dates": lambda: np.array(["2026-01-02"], dtype="datetime64[D]"),
    "no elements": lambda: np.zeros((3, 0)),
    "a scalar": lambda: np.array(3.5),
}


@pytest.mark.parametrize("make", ARRAYS.values(), ids=ARRAYS)
def test_an_array_arrives(pickler: Any, make: Callable[[], np.ndarray[Any, Any]]) -> None:
    arrived = there(pickler, make())
    assert arrived.dtype == make().dtype
    assert arrived.shape == make().shape
    assert arrived.tolist() == make().tolist()
    assert arrived.flags.writeable


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=4), lambda part: st.lists(part, max_size=3) | st.tuples(part, part)
    )
)
def test_plain_data_arrives(value: Any) -> None:
    for make in PICKLERS:
        assert there(make(), value) == value


# Several objects, and what goes wrong


def test_objects_that_are_dumped_one_after_the_other_share_what_they_have_in_common() -> None:
    pickler = CallPickler()
    shared = [1, 2]
    pickler.dump((shared, "first"))
    pickler.dump({"again": shared})
    first, second = load(pickler.stream.getvalue(), [])
    assert second["again"] is first[0]


def test_a_stream_that_ends_too_early_is_an_error() -> None:
    pickler = CallPickler()
    pickler.dump([torch.zeros(LARGE), "x" * 100])
    stream = pickler.stream.getvalue()
    with pytest.raises(pickle.UnpicklingError):
        list(load(stream[:-50], pickler.buffers))
    with pytest.raises(pickle.UnpicklingError):
        list(load(stream, []))


def test_a_failed_dump_leaves_the_next_pickler_alone(pickler: Any) -> None:
    with pytest.raises(TypeError):
        pickler.dump([torch.zeros(LARGE), threading.Lock()])
    assert there(type(pickler)(*[()] * isinstance(pickler, ReturnPickler)), [1]) == [1]


def test_functions_travel_by_value_and_libraries_by_name() -> None:
    factor = 3

    def scaled(values: Any) -> Any:
        return np.sum(values) * factor

    pickler = CallPickler()
    arrived = there(pickler, scaled)
    assert arrived is not scaled
    assert arrived([1, 2]) == 9
    assert b"_wrapreduction" not in pickler.stream.getvalue()


def test_the_text_of_a_cell_goes_with_its_functions_and_that_of_libraries_does_not() -> None:
    text = "def scaled(values):\n    return np.sum(values) * 3\n"
    namespace = {"np": np, "dumps": json.dumps}
    linecache.cache["<a cell>"] = (len(text), None, text.splitlines(keepends=True), "<a cell>")
    exec(compile(text, "<a cell>", "exec"), namespace)
    pickler = CallPickler()
    pickler.dump([namespace["scaled"], np.sum, json.dumps])
    assert pickler.sources() == {"<a cell>": text}


def test_the_picklers_write_what_any_unpickler_reads() -> None:
    pickler = ReturnPickler(())
    pickler.dump({"a": torch.ones(3)})
    assert pickle.load(io.BytesIO(pickler.stream.getvalue()))["a"].tolist() == [1, 1, 1]
