"""Stands in for torchvision.transforms, with Pillow and NumPy."""

import numpy as np
import PIL.Image  # noqa: F401 - as torchvision itself does, on which examples rely
import torch


class Compose:
    """Applies transforms one after the other."""

    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


class Resize:
    """Resizes a Pillow image to (height, width)."""

    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        return image.resize(self.size[::-1])


class RandomResizedCrop:
    """Crops a random square that has a share `scale` of the area, and resizes it."""

    def __init__(self, size, scale):
        self.size, self.scale = size, scale

    def __call__(self, image):
        side = int(min(image.size) * float(torch.empty(()).uniform_(*self.scale)) ** 0.5)
        left, top = (int(torch.randint(0, length - side + 1, ())) for length in image.size)
        return image.crop((left, top, left + side, top + side)).resize(self.size[::-1])


class ToTensor:
    """Makes a (3, height, width) tensor between 0 and 1 of a Pillow image."""

    def __call__(self, image):
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
