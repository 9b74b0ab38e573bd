"""Stands in for the package torchvision: the transforms of four classes."""
