"""Machines that are not there: stand-ins for the libraries and the files of drivers, and for torch's CUDA memory.

They have the interfaces of the real ones, so that detection can be tried on any machine:

    probe = NvmlProbe(lambda: FakeNvml([FakeGpu("NVIDIA H100", 80 << 30)] * 8))
    hardware.detect({}, probe)
"""

from notebook_accel.hardware.fakes.fake_amd_files import write_amd_files
from notebook_accel.hardware.fakes.fake_amd_smi import FakeAmdSmi, amd_smi
from notebook_accel.hardware.fakes.fake_cuda import FakeCuda
from notebook_accel.hardware.fakes.fake_gpu import FakeGpu
from notebook_accel.hardware.fakes.fake_nvml import FakeNvml, nvml

__all__ = ["FakeAmdSmi", "FakeCuda", "FakeGpu", "FakeNvml", "amd_smi", "nvml", "write_amd_files"]
