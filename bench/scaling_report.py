# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What bench/scaling measured, as JSON, a markdown table and plots."""
import json
import shutil
import subprocess

STYLE = """
set terminal pngcairo size {width},640 font "DejaVu Sans,13" noenhanced background "#ffffff"
set border 3 linecolor "#888888"
set tics nomirror out scale 0.5 textcolor "#444444"
set grid linecolor "#e8e8e8" linetype 1 linewidth 1
set for [i=1:6] linetype i linewidth 2.5 pointtype 7 pointsize 1.1
set linetype 1 linecolor "#4c5a67"
set linetype 2 linecolor "#e07b00"
set linetype 3 linecolor "#0b7fab"
set linetype 4 linecolor "#3b8f3e"
set linetype 5 linecolor "#a63d8f"
set linetype 6 linecolor "#b3402a"
set linetype cycle 6
set key above left Left reverse maxcols 3 textcolor "#222222"
"""
HEAD = ["entrant", "ms", "best dense ms", "speed-up", "at link rate", "bytes of the busiest rank",
        "of a dense ring", "sent by the busiest host"]


def write(report, folder):
    """All files anew."""
    (folder / "scaling.json").write_text(json.dumps(report, indent=1) + "\n")
    (folder / "scaling.md").write_text(markdown(report))
    if report["rows"] and shutil.which("gnuplot"):
        for name, script in (("time", time_plot), ("speedup", speedup_plot),
                             ("bytes", bytes_plot)):
            text = script(report["rows"], gnuplot_text(folder / f"{name}.png"))
            # Its warnings, of axes with one point, do not matter.
            subprocess.run(["gnuplot"], input=text, text=True, check=True, capture_output=True)


def is_dense(row):
    return row["compressor"] in ("dense", "none")


def place(row):
    if row["link"] == "shared":
        return f"shared memory, {row['ranks']} ranks"
    return f"{row['link']}, {row['hosts']} hosts x {row['ranks_per_host']} ranks"


def grouped(value):
    return "" if value is None else f"{value:,}"


def at_rate(row):
    ideal = row.get("ring_at_rate_milliseconds")
    return "" if ideal is None else f"{ideal / row['milliseconds']:.2f}"


def markdown(report):
    context = report["context"]
    lines = [f"{context['cores']} cores, load {context['load_before']:.1f} before and "
             f"{context.get('load_after', 0):.1f} after, {context['mpi'] or 'no MPI'}, commit "
             f"{context['commit'] or 'unknown'}, {context['started']}", "",
             "Milliseconds are medians over rounds, of the slowest rank; best dense is the fastest "
             "of the allreduces named dense/... in the same rounds, and speed-up is over that; at "
             "link rate: over a ring whose every byte leaves its host at the link's rate, without "
             "headers, which says how well the dense ones fill the link. What a host sends is the "
             "kernel's count, with all headers, and leaves out what its ranks give each other."]
    section = None
    for row in report["rows"]:
        if section != (here := (place(row), row["count"])):
            section = here
            lines += ["", f"### {here[0]}, {here[1]:,} elements", "",
                      "| " + " | ".join(HEAD) + " |", "|---" * len(HEAD) + "|"]
        cells = [f"`{row['entrant']}`", f"{row['milliseconds']:.3f}",
                 f"{row['best_dense_milliseconds']:.3f}", f"{row['speedup']:.2f}", at_rate(row),
                 grouped(row["wire_bytes"]), grouped(row["dense_wire_bytes"]),
                 grouped(row.get("host_bytes"))]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [f"\nFailed: {failure}" for failure in report["failures"]]
    return "\n".join(lines) + "\n"


def gnuplot_text(text):
    """In gnuplot's single quotes, where only the quote itself is special."""
    return "'" + str(text).replace("'", "''") + "'"


def distinct(values):
    return list(dict.fromkeys(values))


def largest(rows, *keys):
    """The rows whose keys are the greatest there are."""
    for key in keys:
        most = max(row[key] for row in rows)
        rows = [row for row in rows if row[key] == most]
    return rows


def entrants(rows):
    return distinct(row["entrant"] for row in rows if not is_dense(row))


def panel(number, title, lines):
    """`lines`: of each line its title and points, x and y. Commands that draw them."""
    script = f"set title {gnuplot_text(title)} textcolor '#222222'\n"
    plots = []
    for i, (name, points) in enumerate(lines):
        block = f"$panel{number}_{i}"
        script += f"{block} << END\n" + "".join(f"{x} {y}\n" for x, y in points) + "END\n"
        plots.append(f"{block} using 1:2 with linespoints linetype {i % 6 + 1} "
                     f"title {gnuplot_text(name)}")
    return script + "plot " + ", ".join(plots) + "\n"


def time_plot(rows, path):
    """Time against size: a panel for each link, of its most ranks."""
    links = distinct(row["link"] for row in rows)
    script = STYLE.format(width=560 * len(links)) + f"set output {path}\n"
    script += "set logscale xy\nset xlabel 'elements'\nset ylabel 'milliseconds'\n"
    script += f"set multiplot layout 1,{len(links)}\n"
    for number, link in enumerate(links):
        here = largest([row for row in rows if row["link"] == link], "ranks", "hosts")
        dense = {}
        for row in here:
            dense.setdefault(row["count"], []).append(row["best_dense_milliseconds"])
        lines = [("best dense", [(x, sorted(y)[len(y) // 2]) for x, y in sorted(dense.items())])]
        lines += [(name, sorted((row["count"], row["milliseconds"]) for row in here
                                if row["entrant"] == name)) for name in entrants(here)]
        script += panel(number, place(here[0]), lines)
    return script + "unset multiplot\n"


def speedup_plot(rows, path):
    """Speed-up over the best dense against the link: of the most ranks and the largest size."""
    links = distinct(row["link"] for row in rows)
    best = {link: largest([row for row in rows if row["link"] == link], "count", "ranks", "hosts")
            for link in links}
    script = STYLE.format(width=960) + f"set output {path}\n"
    ticks = ", ".join(f"{gnuplot_text(link)} {x}" for x, link in enumerate(links))
    script += f"set xtics ({ticks})\nset xrange [-0.5:{len(links) - 0.5}]\nset logscale y\n"
    script += "set xlabel 'link'\nset ylabel 'times as fast as the best dense allreduce'\n"
    names = distinct(name for here in best.values() for name in entrants(here))
    lines = [("best dense", [(-0.5, 1), (len(links) - 0.5, 1)])]
    for name in names:
        lines.append((name, [(x, row["speedup"]) for x, link in enumerate(links)
                             for row in best[link] if row["entrant"] == name]))
    count = max(row["count"] for row in rows)
    return script + panel(0, f"{count:,} elements, on each link the most ranks", lines)


def bytes_plot(rows, path):
    """Bytes that the busiest rank sends against ranks, of the largest size."""
    rows = largest(rows, "count")
    script = STYLE.format(width=960) + f"set output {path}\n"
    script += "set logscale xy 2\nset logscale y 10\nset xlabel 'ranks'\n"
    script += "set ylabel 'bytes that the busiest rank sends in a call'\n"
    lines = [("dense ring", sorted({(row["ranks"], row["dense_wire_bytes"]) for row in rows}))]
    for name in entrants(rows):
        points = {row["ranks"]: row["wire_bytes"] for row in rows if row["entrant"] == name}
        lines.append((name, sorted(points.items())))
    return script + panel(0, f"{rows[0]['count']:,} elements", lines)
