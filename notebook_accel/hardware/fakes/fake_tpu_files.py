"""The PCI bus and the device files of a machine with TPU chips that is not there."""

from __future__ import annotations

from pathlib import Path


def write_tpu_files(
    root: Path, chips: int, *, number: str = "0x0063", nodes: str = "dev/vfio/{}", listed: bool = True
) -> None:
    """Writes the files of a machine with such chips, beside a network card; `root` is that of a `TpuProbe`.

    Args:
        root: An empty folder.
        chips: The number of chips.
        number: That of their PCI device: 0x0063 is a v5e.
        nodes: The pattern of their device files.
        listed: Whether the PCI bus lists them.
    """
    for index in range(chips + 1):
        device = root / f"sys/bus/pci/devices/0000:00:{index:02}.0"
        if listed or index == chips:
            device.mkdir(parents=True)
            (device / "vendor").write_text("0x1ae0\n")
            (device / "device").write_text("0x0042\n" if index == chips else f"{number}\n")
        if index < chips:
            node = root / nodes.format(index)
            node.parent.mkdir(parents=True, exist_ok=True)
            node.touch()
    (root / "dev/vfio").mkdir(parents=True, exist_ok=True)
    (root / "dev/vfio/vfio").touch()
