# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""The rows that bench/hosts/scaling measures, one for each entrant, size, link and place."""
import re

SHARED = "shared"


def bits_per_second(link):
    """None where the link has no rate."""
    match = re.fullmatch(r"(\d+)(k|m|g)?bit", link.lower())
    return int(match[1]) * {None: 1, "k": 1e3, "m": 1e6, "g": 1e9}[match[2]] if match else None


def is_dense(row):
    return row["compressor"] in ("dense", "none")


def distinct(values):
    return list(dict.fromkeys(values))


def links_of(rows):
    """The slowest first, shared memory last."""
    return sorted(distinct(row["link"] for row in rows),
                  key=lambda link: (link == SHARED, bits_per_second(link) or float("inf")))


def place(row):
    return row["hosts"], row["ranks_per_host"]


def places_of(rows):
    return sorted(distinct(map(place, rows)), key=lambda at: (at[0] * at[1], at))


def title_of(link, at):
    hosts, ranks = at
    return f"{ranks} ranks" if link == SHARED else f"{hosts} x {ranks}"


def on_hosts(rows):
    """Those between hosts; where there are none, all."""
    return [row for row in rows if row["link"] != SHARED] or rows


def entrants(rows):
    return distinct(row["entrant"] for row in rows if not is_dense(row))


def bytes_of(rows, key):
    """Of each entrant, the bytes at each place. They are those of any link, but for auto's choice."""
    found = {}
    for row in rows:
        if row["schedule"] != "auto" and row.get(key) is not None:
            found.setdefault(row["entrant"], {}).setdefault(place(row), row[key])
    return found
