"""The rows of a csv file, for several tests."""

import csv


def rows(path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))
