"""Trains on handwritten digits, on any number of ranks.

notebook-accel launch examples/train.py
notebook-accel launch --num_processes 2 --mixed_precision bf16 examples/train.py --epochs 4
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import Accelerator, set_seed


def make_loaders(batch_size: int) -> tuple[DataLoader, DataLoader]:
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    data = TensorDataset(images, torch.tensor(digits.target))
    train, test = torch.utils.data.random_split(data, [0.8, 0.2], torch.Generator().manual_seed(0))
    return DataLoader(train, batch_size, shuffle=True), DataLoader(test, batch_size)


def accuracy(accelerator: Accelerator, model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    right = []
    with torch.no_grad():
        for images, digits in loader:
            right.append(accelerator.gather_for_metrics(model(images).argmax(1) == digits))
    return torch.cat(right).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch_size", type=int, default=32, help="of each rank")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--save", metavar="FOLDER", help="where to write the model")
    arguments = parser.parse_args()

    set_seed(0)
    accelerator = Accelerator()
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr)
    train, test = make_loaders(arguments.batch_size)
    model, optimizer, train, test = accelerator.prepare(model, optimizer, train, test)

    for epoch in range(arguments.epochs):
        model.train()
        for images, digits in train:
            with accelerator.accumulate(model):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(images), digits)
                accelerator.backward(loss)
                optimizer.step()
        right = accuracy(accelerator, model, test)
        accelerator.print(f"epoch {epoch + 1}: {right:.1%} of the digits are read right")
    if arguments.save:
        accelerator.save_model(model, arguments.save)
    accelerator.end_training()


if __name__ == "__main__":
    main()
