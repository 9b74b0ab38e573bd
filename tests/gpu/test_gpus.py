"""What works on GPUs, from a real notebook. Each test is a row of the table that `scripts/test-gpu` prints.

Those that can run on the CPU see nothing there that tests of kernels and of training runs don't see too.
"""

from __future__ import annotations

import pytest
import torch

from tests.gpu.conftest import Devices
from tests.live_notebook import Notebook, wait_until

pytestmark = [pytest.mark.gpu, *([] if torch.cuda.is_available() else [pytest.mark.nightly])]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_a_launch_after_the_notebook_has_used_the_device(notebook: Notebook, devices: Devices) -> None:
    found = notebook.value("""
    before = (torch.ones(512, 512, device=device) @ torch.ones(512, 512, device=device)).sum().item()
    def work():
        accelerator = Accelerator()
        part = torch.ones(512, 512, device=accelerator.device) @ torch.ones(512, 512, device=accelerator.device)
        return accelerator.device.type, accelerator.local_process_index, part.sum().item() == before
    notebook_launcher(work, num_processes=ranks, device=device)
    """)
    assert found == [(devices.kind, index, True) for index in range(devices.ranks)]


def test_collectives_on_all_devices(notebook: Notebook, devices: Devices) -> None:
    found = notebook.value("""
    def work():
        accelerator = Accelerator()
        own = torch.tensor([accelerator.process_index + 1.0], device=accelerator.device)
        total, all_of_them = accelerator.reduce(own), accelerator.gather(own)
        objects = [each for each in __import__("notebook_accel").utils.gather_object([accelerator.process_index])]
        return total.item(), all_of_them.tolist(), objects, os.environ["NOTEBOOK_ACCEL_BACKEND"]
    notebook_launcher(work, num_processes=ranks, device=device)
    """)
    size = devices.ranks
    row = (sum(range(1, size + 1)), [float(each) for each in range(1, size + 1)], list(range(size)), devices.backend)
    assert found == [row] * size


@needs_gpu
def test_two_ranks_on_one_gpu(notebook: Notebook) -> None:
    found = notebook.value("""
    def work():
        accelerator = Accelerator()
        return str(accelerator.device), accelerator.reduce(torch.ones(1, device=accelerator.device)).item()
    notebook_launcher(work, gpus=[0, 0])
    """)
    assert found == [("cuda:0", 2.0)] * 2


def test_a_captured_tensor_of_the_device(notebook: Notebook, devices: Devices) -> None:
    found = notebook.value("""
    captured = torch.arange(1000, device=device)
    notebook_launcher(lambda: (captured.device.type, captured.sum().item()), num_processes=ranks, device=device)
    """)
    assert found == [(devices.kind, 499_500)] * devices.ranks


@pytest.mark.parametrize("precision", ["no", "bf16", pytest.param("fp16", marks=needs_gpu)])
def test_ddp_learns_what_plain_torch_learns(notebook: Notebook, devices: Devices, precision: str) -> None:
    """One loop by `Accelerator`, and one by hand, on the same ranks with the same samples."""
    difference, first, last = notebook.value(f"""
    def work(precision={precision!r}):
        accelerator = Accelerator(mixed_precision=precision)
        model, optimizer = make(), None
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data(), batch_size=32))
        losses = []
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        plain = make().to(accelerator.device)
        index = [accelerator.local_process_index] if accelerator.device.type == "cuda" else None
        ddp = DistributedDataParallel(plain, device_ids=index) if accelerator.num_processes > 1 else plain
        sgd = torch.optim.SGD(ddp.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler(accelerator.device.type, enabled=precision == "fp16")
        type_ = {{"bf16": torch.bfloat16, "fp16": torch.float16}}.get(precision, torch.float32)
        for inputs, targets in loader:
            with torch.autocast(accelerator.device.type, dtype=type_, enabled=precision != "no"):
                outputs = ddp(inputs)
            scaler.scale(nn.functional.cross_entropy(outputs.float(), targets)).backward()
            scaler.step(sgd)
            scaler.update()
            sgd.zero_grad()
        gap = (weights(accelerator.unwrap_model(model)) - weights(plain)).abs().max().item()
        return gap, losses[0], losses[-1]
    notebook_launcher(work, num_processes=ranks, device=device)[0]
    """)
    assert difference <= (1e-6 if precision == "no" else 1e-2)
    assert last < first


def test_fsdp_learns_what_ddp_learns(notebook: Notebook, devices: Devices) -> None:
    difference = notebook.value("""
    def work():
        found = []
        for plugin in (None, FullyShardedDataParallelPlugin(fsdp_version=2)):
            accelerator = Accelerator(fsdp_plugin=plugin)
            model = accelerator.prepare(make())
            optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), lr=0.1))
            for inputs, targets in accelerator.prepare(DataLoader(data(), batch_size=32)):
                accelerator.backward(nn.functional.cross_entropy(model(inputs), targets))
                optimizer.step()
                optimizer.zero_grad()
            state = accelerator.get_state_dict(model)
            if accelerator.is_main_process:
                found.append(torch.cat([each.float().cpu().flatten() for each in state.values()]))
            accelerator.end_training()
        return (found[0] - found[1]).abs().max().item() if found else None
    notebook_launcher(work, num_processes=ranks, device=device)[0]
    """)
    assert difference < 1e-5


@needs_gpu
def test_fp8_or_its_refusal(notebook: Notebook) -> None:
    pytest.importorskip("torchao")
    text = notebook.value("""
    def work():
        try:
            model = Accelerator(mixed_precision="fp8").prepare(nn.Sequential(*[nn.Linear(64, 64) for _ in range(3)]))
        except HardwareError as error:
            return str(error)
        return type(model(torch.ones(16, 64, device="cuda"))).__name__
    from notebook_accel import HardwareError
    notebook_launcher(work, num_processes=1, device=device)[0]
    """)
    assert text == "Tensor" or "cannot compute in fp8" in text


def test_copies_from_pinned_memory(notebook: Notebook, devices: Devices) -> None:
    found = notebook.value("""
    def work():
        accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(non_blocking=True))
        loader = accelerator.prepare(DataLoader(data(), batch_size=64, pin_memory=device == "cuda"))
        return sum(inputs.double().sum().item() for inputs, _ in loader), inputs_device(loader)
    def inputs_device(loader):
        return next(iter(loader))[0].device.type
    parts = notebook_launcher(work, num_processes=ranks, device=device)
    abs(sum(part for part, _ in parts) - data().tensors[0].double().sum().item()) < 1e-3, {kind for _, kind in parts}
    """)
    assert found == (True, {devices.kind})


@needs_gpu
def test_the_panel_shows_the_memory_of_each_device(notebook: Notebook, devices: Devices) -> None:
    notebook.check("""
    def work():
        held = torch.ones(2**28, device=Accelerator().device)
        while not os.path.exists("enough"):
            time.sleep(0.01)
    job = notebook_launcher(work, num_processes=ranks, device=device, block=False)
    """)
    try:
        wait_until(lambda: notebook.value("all((each.device_used or 0) >= 2**30 for each in job.ranks)"))
    finally:
        notebook.check("open('enough', 'w').close(); job.result(timeout=45); os.remove('enough')")


@needs_gpu
def test_memory_that_is_used_up_names_the_rank(notebook: Notebook) -> None:
    cell = notebook.run("""
    def work():
        torch.ones(2**50, device=Accelerator().device)
    notebook_launcher(work, num_processes=ranks, device=device)
    """)
    assert cell.error == "RankError"
    assert "rank 0" in cell.error_text
    assert "OutOfMemoryError" in cell.traceback


def test_a_compiled_model(notebook: Notebook, devices: Devices) -> None:
    """Compiled without its code generator on the CPU, where that takes half a minute."""
    found = notebook.value(
        """
    def work():
        accelerator = Accelerator(dynamo_backend="inductor" if device == "cuda" else "eager")
        plain = make().to(accelerator.device)
        model = accelerator.prepare(make())
        ones = torch.ones(4, 64, device=accelerator.device)
        return (model(ones) - plain(ones)).abs().max().item() < 1e-3
    notebook_launcher(work, num_processes=ranks, device=device)
    """,
        timeout=300,
    )
    assert found == [True] * devices.ranks


def test_a_checkpoint_resumes_to_the_same_random_numbers(notebook: Notebook, devices: Devices) -> None:
    found = notebook.value("""
    import tempfile
    def work(folder=tempfile.mkdtemp()):
        accelerator = Accelerator()
        set_seed(3)
        model = accelerator.prepare(make())
        accelerator.save_state(folder)
        first = torch.rand(3, device=accelerator.device).tolist()
        accelerator.load_state(folder)
        return first == torch.rand(3, device=accelerator.device).tolist()
    notebook_launcher(work, num_processes=ranks, device=device)
    """)
    assert found == [True] * devices.ranks


def test_an_interrupt_ends_ranks_that_compute(notebook: Notebook) -> None:
    cell = notebook.begin("""
    def work():
        matrix = torch.ones(512, 512, device=Accelerator().device) / 512
        print("computing", flush=True)
        while True:
            matrix = matrix @ matrix
    notebook_launcher(work, num_processes=ranks, device=device)
    """)
    notebook.read_until(cell, "computing")
    notebook.interrupt()
    notebook.finish(cell)
    assert cell.error == "KeyboardInterrupt"
    wait_until(lambda: not notebook.launched(), 10)


def test_the_server_opens_no_device(notebook: Notebook) -> None:
    notebook.check("notebook_launcher(lambda: torch.ones(1, device=Accelerator().device), num_processes=ranks)")
    opened = [file.path for process in notebook.servers() for file in process.open_files()]
    assert not [path for path in opened if path.startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri"))]
