"""Machines that are not there: stand-ins for the libraries and the files of drivers, and for torch's CUDA memory.

They have the interfaces of the real ones, so that detection can be tried on any machine:

    probe = NvmlProbe(lambda: FakeNvml([FakeGpu("NVIDIA H100", 80 << 30)] * 8))
    hardware.detect({}, probe)
"""

from notebook_accel.hardware.fakes.fake_amd_files import write_amd_files
from notebook_accel.hardware.fakes.fake_amd_smi import FakeAmdSmi, amd_smi
from notebook_accel.hardware.fakes.fake_cuda import FakeCuda
from notebook_accel.hardware.fakes.fake_gpu import FakeGpu
from notebook_accel.hardware.fakes.fake_hardware import fake_hardware
from notebook_accel.hardware.fakes.fake_intel_files import write_intel_files
from notebook_accel.hardware.fakes.fake_nvml import FakeNvml, nvml
from notebook_accel.hardware.fakes.fake_tpu_files import write_tpu_files

__all__ = [
    "FakeAmdSmi",
    "FakeCuda",
    "FakeGpu",
    "FakeNvml",
    "amd_smi",
    "fake_hardware",
    "nvml",
    "write_amd_files",
    "write_intel_files",
    "write_tpu_files",
]
