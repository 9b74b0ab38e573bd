"""Stands in for the package datasets: pairs of sentences for GLUE, and texts for WikiText, made up of 60 words."""

import random
from itertools import compress

WORDS = [f"word{number}" for number in range(60)]


class Dataset:
    """Columns of the same length, by name; what datasets.Dataset does in Accelerate's examples."""

    def __init__(self, columns):
        self._columns = columns

    @property
    def num_rows(self):
        """How many rows it has."""
        return len(next(iter(self._columns.values())))

    def __len__(self):
        return self.num_rows

    def __getitem__(self, key):
        if isinstance(key, str):
            return self._columns[key]
        return {name: values[key] for name, values in self._columns.items()}

    def select(self, rows):
        """Those rows."""
        return Dataset({name: [values[row] for row in rows] for name, values in self._columns.items()})

    def filter(self, keep, *, input_columns):
        """The rows for whose value of one column `keep` returns true."""
        kept = [keep(value) for value in self._columns[input_columns]]
        return Dataset({name: list(compress(values, kept)) for name, values in self._columns.items()})

    def map(self, function, *, batched, remove_columns):
        """The columns with those that `function` makes of all rows, and without some."""
        columns = {**self._columns, **function(self._columns)}
        return Dataset({name: values for name, values in columns.items() if name not in remove_columns})

    def rename_column(self, old, new):
        """The same columns, one by another name."""
        return Dataset({new if name == old else name: values for name, values in self._columns.items()})


class IterableDataset:
    """A class of datasets that Accelerate looks for, and that no example uses."""


class DatasetDict(dict):
    """Data sets by the name of their split, all changed at once."""

    def __getattr__(self, name):
        if name not in ("filter", "map", "rename_column"):
            raise AttributeError(name)
        return lambda *args, **kwargs: DatasetDict(
            {split: getattr(rows, name)(*args, **kwargs) for split, rows in self.items()}
        )


def load_dataset(name, configuration):
    """A training split and a smaller validation split, whose lengths two ranks can't share evenly."""
    chance = random.Random(0)
    if name == "glue":
        return DatasetDict(train=_pairs(chance, 93), validation=_pairs(chance, 37))
    return DatasetDict(train=_texts(chance, 501), validation=_texts(chance, 37))


def _sentences(chance, count):
    return [" ".join(chance.choices(WORDS, k=chance.randint(4, 12))) for _ in range(count)]


def _texts(chance, count):
    return Dataset({"text": _sentences(chance, count)})


def _pairs(chance, count):
    sentences = {"sentence1": _sentences(chance, count), "sentence2": _sentences(chance, count)}
    return Dataset({**sentences, "label": [number % 2 for number in range(count)], "idx": list(range(count))})
