# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Plots of what bench/hosts/scaling measured: gnuplot's commands."""
import statistics

from scaling_rows import (SHARED, bytes_of, distinct, entrants, is_dense, links_of, on_hosts, place,
                          places_of, title_of)

STYLE = """
set terminal pngcairo size {width},560 font "DejaVu Sans,12" noenhanced background "#ffffff"
set border 3 linecolor "#888888"
set tics nomirror out scale 0.5 textcolor "#444444"
set grid linecolor "#e8e8e8" linetype 1 linewidth 1
set key at screen {key},0.92 left top Left reverse vertical maxcols 1 spacing 1.3 textcolor "#222222"
set multiplot layout 1,{panels} margins {left},{right},0.13,0.9 spacing {spacing}
"""
# A schedule has a colour, its two-level form a lighter one, a compressor a dash and a point.
COLOURS = {"gather": "#e07b00", "doubling": "#0b7fab", "balanced": "#3b8f3e", "shared": "#a63d8f",
           "two_level:gather": "#f0b46c", "two_level:doubling": "#85c4de",
           "two_level:balanced": "#93cf95", "two_level:shared": "#d29fc6", "auto": "#111111"}
DENSE_COLOUR = OTHER_COLOUR = "#8a97a3"
DASHES_AND_POINTS = [(1, 7), ("'-'", 6), ("'.'", 9), ("'-.'", 4)]


def gnuplot_text(text):
    """In gnuplot's single quotes, where only the quote itself is special."""
    return "'" + str(text).replace("'", "''") + "'"


def figure(path, panels):
    """Commands that draw panels side by side, and one key beside them. A panel: its commands, and of
    each line its name and points, x and y; where there is no y the line is broken."""
    width = 430 * len(panels) + 380
    names = distinct(name for _, lines in panels for name, _ in lines)
    style = line_styles(names)
    script = f"set output {gnuplot_text(path)}\n" + STYLE.format(
        width=width, panels=len(panels), left=100 / width, right=1 - 360 / width,
        spacing=100 / width, key=1 - 345 / width)
    for number, (commands, lines) in enumerate(panels):
        plots = []
        for i, name in enumerate(names):
            points = dict(lines).get(name, [])
            block = f"$panel{number}_{i}"
            # A line without points would be missing from the key.
            data = "".join(f"{x} {y}\n" if y else "\n" for x, y in points) or "NaN NaN\n"
            script += f"{block} << END\n{data}END\n"
            plots.append(f"{block} using 1:2 with linespoints {style[name]} "
                         f"title {gnuplot_text(name)}")
        key = "unset" if number < len(panels) - 1 else "set"
        script += f"{commands}{key} key\nplot {', '.join(plots)}\n"
    return script + "unset multiplot\n"


def line_styles(names):
    compressors = distinct(name.partition("/")[0] for name in names if "/" in name)
    styles = {}
    for name in names:
        compressor, _, schedule = name.partition("/")
        dash, point = (1, 5)
        if schedule:
            dash, point = DASHES_AND_POINTS[compressors.index(compressor) % len(DASHES_AND_POINTS)]
        colour = COLOURS.get(schedule, OTHER_COLOUR)
        styles[name] = (f"linecolor '{colour}' dashtype {dash} linewidth 2.5 pointtype {point} "
                        f"pointsize 1.1")
    return styles


def titled(title):
    return f"set title {gnuplot_text(title)} textcolor '#222222'\n"


def beside(lines):
    """Moves the points of each line a little to a side, so that equal ones can be told apart."""
    middle = (len(lines) - 1) / 2
    return [(name, [(x + 0.03 * (i - middle), y) for x, y in points])
            for i, (name, points) in enumerate(lines)]


def level(panels):
    """The same range of y for all panels."""
    values = [y for _, lines in panels for _, points in lines for _, y in points if y]
    commands = f"set yrange [{min(values) / 1.5}:{max(values) * 1.5}]\n"
    return [(commands + before, lines) for before, lines in panels]


def ticks(names):
    """Of an axis whose places 0, 1, ... have names."""
    places = ", ".join(f"{gnuplot_text(name)} {x}" for x, name in enumerate(names))
    return f"set xtics ({places})\nset xrange [-0.4:{len(names) - 0.6}]\n"


def time(rows, path):
    """Time against size: a panel for each link, of its most ranks."""
    panels = []
    for link in links_of(rows):
        here = [row for row in rows if row["link"] == link]
        at = places_of(here)[-1]
        here = [row for row in here if place(row) == at]
        sizes = sorted({row["count"] for row in here})
        dense = [(x, statistics.median(row["best_dense_milliseconds"] for row in here
                                       if row["count"] == x)) for x in sizes]
        lines = [("best dense", dense)]
        for name in entrants(here):
            lines.append((name, sorted((row["count"], row["milliseconds"]) for row in here
                                       if row["entrant"] == name)))
        names = ", ".join(f"'{size:,}' {size}" for size in sizes)
        where = "shared memory" if link == SHARED else link
        panels.append((titled(f"{where}, {title_of(link, at)}{'' if link == SHARED else ' ranks'}") +
                       f"set logscale xy\nset xtics ({names})\n"
                       f"set xrange [{sizes[0] / 1.3}:{sizes[-1] * 1.3}]\n"
                       "set xlabel 'elements'\nset ylabel 'milliseconds'\nset format y '%g'\n",
                       lines))
    return figure(path, panels)


def speedup(rows, path):
    """Speed-up over the best dense against the link, of the largest size: a panel for each number of
    ranks a host, of the most hosts that all links have. Shared memory has as many ranks in all."""
    count = max(row["count"] for row in rows)
    rows = [row for row in rows if row["count"] == count]
    links = links_of(rows)
    between = on_hosts(rows)
    everywhere = set.intersection(*({place(row) for row in between if row["link"] == link}
                                    for link in links_of(between)))
    most = {}
    for hosts, ranks in everywhere or places_of(between):
        most[ranks] = max(hosts, most.get(ranks, 0))
    panels = []
    for ranks, hosts in sorted(most.items()):
        here = [row for row in rows
                if place(row) == (hosts, ranks) or
                (row["link"] == SHARED and row["ranks"] == hosts * ranks)]
        lines = [(name, [(x, row["speedup"]) for x, link in enumerate(links) for row in here
                         if row["link"] == link and row["entrant"] == name])
                 for name in entrants(here)]
        lines = [("best dense", [(-0.4, 1), (len(links) - 0.6, 1)]), *beside(lines)]
        where = f"{hosts} hosts x {ranks} ranks" if hosts > 1 else f"{ranks} ranks"
        panels.append((titled(f"{where}, {count:,} elements") + ticks(links) +
                       "set logscale y\nset xlabel 'link'\nset format y '%g'\n"
                       "set ylabel 'times as fast as the best dense'\n", lines))
    return figure(path, level(panels))


def sent(rows, path):
    """Bytes of a call, of the largest size, against the number of hosts, once for each number of
    ranks on them: what the busiest rank sends and, where it was counted, what leaves the busiest
    host. Of shared memory, against the number of ranks."""
    count = max(row["count"] for row in rows)
    rows = on_hosts([row for row in rows if row["count"] == count])
    shared = rows[0]["link"] == SHARED
    places = sorted(places_of(rows), key=lambda at: (not shared and at[1], at))
    breaks = [x - 0.5 for x in range(1, len(places))
              if not shared and places[x][1] != places[x - 1][1]]
    compressed = [row for row in rows if not is_dense(row)]
    ring = {"dense ring": {place(row): row["dense_wire_bytes"] for row in rows}}
    dense = {"dense ring": bytes_of(rows, "host_bytes").get("dense/mpi_ring", {})}
    panels = []
    for title, found in (("the busiest rank sends", ring | bytes_of(compressed, "wire_bytes")),
                         ("leave the busiest host", dense | bytes_of(compressed, "host_bytes"))):
        lines = [(name, sorted([(x, cells[at]) for x, at in enumerate(places) if at in cells] +
                               [(x, None) for x in breaks])) for name, cells in found.items()]
        if any(found.values()):
            names = [title_of(rows[0]["link"], at) for at in places]
            label = "ranks" if shared else "hosts x ranks on each"
            panels.append((titled(f"{title}, {count:,} elements") + ticks(names) +
                           "set logscale y\nset format y '%.0s %cB'\n"
                           f"set xlabel '{label}'\nset ylabel 'bytes a call'\n", beside(lines)))
    return figure(path, level(panels))
