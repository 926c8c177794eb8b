# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What bench/hosts/scaling measured, as JSON, markdown tables and plots."""
import json
import math
import shutil
import subprocess

import scaling_plots
from scaling_rows import (SHARED, bytes_of, distinct, is_dense, links_of, on_hosts, place, places_of,
                          title_of)

PREFACE = """\
Milliseconds are medians over rounds, of the slowest rank; in brackets, how many times the fastest of
the allreduces named `dense/...` took in the same rounds; bold, the fastest. A column is a number of
hosts x ranks on each. *Best dense* is that fastest one, the least and the most of all entrants'
rounds; *ring at link rate* is a dense ring whose every byte leaves its host at the link's rate,
without headers: how far dense ones are above it says how well they fill the link.
"""


def write(report, folder):
    """All files anew."""
    (folder / "scaling.json").write_text(json.dumps(report, indent=1) + "\n")
    render([report], folder)


def render(reports, folder):
    """Tables and plots of all reports together. False where there is no gnuplot for the plots."""
    rows = rows_of(reports)
    (folder / "scaling.md").write_text(markdown(reports, rows))
    if not shutil.which("gnuplot"):
        return False
    for name, script in (("time", scaling_plots.time), ("speedup", scaling_plots.speedup),
                         ("bytes", scaling_plots.sent)):
        if rows:
            text = script(rows, folder / f"{name}.png")
            # Ignore its warnings about axes with one point.
            subprocess.run(["gnuplot"], input=text, text=True, check=True, capture_output=True)
    return True


def rows_of(reports):
    """Of the same entrant, size, link and place, the last report's."""
    rows = {(row["link"], place(row), row["count"], row["entrant"]): row
            for report in reports for row in report["rows"]}
    return list(rows.values())


def digits(value, count):
    """`count` significant ones of a value above 0, without an exponent."""
    rounded = float(f"{value:.{count - 1}e}")
    return f"{rounded:,.{max(0, count - 1 - math.floor(math.log10(rounded)))}f}"


def table(head, lines):
    return ["", "| " + " | ".join(head) + " |", "|---" * len(head) + "|",
            *("| " + " | ".join(line) + " |" for line in lines)]


def time_table(rows, link):
    """`rows`: of one link and size."""
    places = places_of(rows)
    here = {at: [row for row in rows if place(row) == at] for at in places}
    fastest = {at: min(row["milliseconds"] for row in here[at]) for at in places}

    def cell(row):
        if row is None:
            return ""
        text = f"{digits(row['milliseconds'], 3)} ({digits(row['speedup'], 2)}x)"
        return f"**{text}**" if row["milliseconds"] == fastest[place(row)] else text

    dense = [[row["best_dense_milliseconds"] for row in here[at]] for at in places]
    lines = [["best dense", *(f"{digits(min(each), 3)} to {digits(max(each), 3)}"
                              for each in dense)]]
    if all("ring_at_rate_milliseconds" in row for row in rows):
        lines.append(["ring at link rate", *(digits(here[at][0]["ring_at_rate_milliseconds"], 3)
                                             for at in places)])
    for name in distinct(row["entrant"] for row in rows):
        found = {place(row): row for row in rows if row["entrant"] == name}
        lines.append([f"`{name}`", *(cell(found.get(at)) for at in places)])
    return table(["ms", *(title_of(link, at) for at in places)], lines)


def bytes_table(rows, what, found):
    places = [at for at in places_of(rows) if any(at in cells for cells in found.values())]
    lines = [[f"`{name}`" if "/" in name else name,
              *(f"{cells[at]:,}" if at in cells else "" for at in places)]
             for name, cells in found.items()]
    return table([what, *(title_of(rows[0]["link"], at) for at in places)], lines)


def markdown(reports, rows):
    lines = []
    for context in (report["context"] for report in reports):
        lines.append(f"{context['cores']} cores, load {context['load_before']:.1f} before and "
                     f"{context.get('load_after', 0):.1f} after, {context['mpi'] or 'no MPI'}, "
                     f"commit {context['commit'] or 'unknown'}, {context['started']}, rounds "
                     f"{context['settings']['rounds']}  ")
    lines += ["", PREFACE.rstrip()]
    sizes = sorted({row["count"] for row in rows})
    for link in links_of(rows):
        for count in sizes:
            here = [row for row in rows if row["link"] == link and row["count"] == count]
            if here:
                name = "shared memory" if link == SHARED else link
                lines += ["", f"### {name}, {count:,} elements", *time_table(here, link)]
    for count in sizes:
        here = on_hosts([row for row in rows if row["count"] == count])
        compressed = [row for row in here if not is_dense(row)]
        ring = {place(row): row["dense_wire_bytes"] for row in here}
        lines += ["", f"### Bytes, {count:,} elements",
                  *bytes_table(here, "the busiest rank sends, to anybody",
                               {"dense ring": ring} | bytes_of(compressed, "wire_bytes"))]
        counted = bytes_of(here, "host_bytes")
        if counted:
            lines += bytes_table(here, "leave the busiest host, by the kernel's count, all headers "
                                 "included", counted)
    lines += [f"\nFailed: {failure}" for report in reports for failure in report["failures"]]
    return "\n".join(lines) + "\n"
