# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What the calls of this rank have done so far, for people and for loggers."""
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from winnow.torch.attach import Attached, state_of
from winnow.torch.state import State

Stats = Dict[str, Any]
Row = Sequence[str]


class _Summary(NamedTuple):
    """The statistics of a State's reducer; there are none before its ranks have met."""

    steps: int
    totals: Stats
    schedules: List[Stats]
    buckets: List[Stats]
    words: Dict[str, str]  # the options in use


def _summary_of(state: State) -> Optional[_Summary]:
    if not state.is_open and not state.is_detached:
        return None
    reducer = state.reducer
    return _Summary(state.overlap.steps, reducer.totals(), reducer.schedule_stats(),
                    reducer.bucket_stats(),
                    dict(word.split("=", 1) for word in reducer.options.split()))


def _milliseconds(state: State, summary: Optional[_Summary]) -> Dict[str, float]:
    """Of all steps, in the order of the report, by the names of metrics. On GPUs the host knows no
    times: those of stages are the device's, with the option stats, and the others are left out."""
    found = {}
    on_host = state.is_on_host
    if on_host:
        reducing, waited = state.overlap.reduce_seconds, state.overlap.wait_seconds
        found.update(reduce=reducing, hidden=max(0.0, reducing - waited), wait=waited)
    if on_host or (summary is not None and summary.words["stats"] != "0"):
        stages = summary.totals if summary is not None else {}
        found["messages"] = sum(stages.get(f"{stage}_seconds", 0.0) for stage in ("exchange", "wait"))
        found["selection"] = sum(stages.get(f"{stage}_seconds", 0.0)
                                 for stage in ("select", "encode", "add"))
    found["dense"] = summary.totals["dense_seconds"] if summary is not None else 0.0
    return {f"{name}_ms": 1000.0 * seconds for name, seconds in found.items()}


def _state_of(bucket: Stats, steps: int) -> str:
    """Whether its schedule is settled. What was called once in several steps is of the first one,
    after which DistributedDataParallel cuts other buckets."""
    if bucket["totals"]["calls"] == 1 and steps > 2:
        return "over"
    return "trying" if bucket["trying"] else "settled"


def _saved(stats: Stats) -> float:
    """How many times fewer bytes than a dense ring's; 1 where nothing was sent."""
    sent = stats.get("wire_bytes", 0)
    return stats["dense_wire_bytes"] / sent if sent else 1.0


def metrics(model: Attached) -> Dict[str, float]:
    """What the calls of this rank have done so far, as numbers for TensorBoard, wandb or a Trainer's
    log; the keys stay the same from step to step. `model`: what Winnow is attached to, its State,
    or a group of the backend winnow.
    Local: each rank has its own. None of them is a NaN; before the first step they are 0, or 1.

    Sums over all steps, and with "_per_step" behind the key their means: "winnow/wire_bytes", what
    this rank sent; "winnow/dense_wire_bytes", what a dense ring would have sent; and in milliseconds

    - "winnow/reduce_ms": the time in which at least one sum was in flight, from where the backward
      pass hands over a bucket to where its sum is there, waits for slower ranks included;
    - "winnow/wait_ms": how long training did nothing but wait for sums, most of it at the end of the
      backward pass. attach_hsdp and attach_fsdp wait for each sum;
    - "winnow/hidden_ms": the difference, which the backward pass hides;
    - "winnow/messages_ms", "winnow/selection_ms": of the time of calls, what messages took, and what
      selecting, coding, decoding and adding took;
    - "winnow/dense_ms": what dense sums would take by the links as they were measured when ranks met,
      hidden or not, without waits for slower ranks; 0 where nothing is compressed or one rank is alone.

    On GPUs only the last is known, and with the option stats=1 also the two before it.

    Besides "winnow/steps", backward passes that reduced gradients; "winnow/calls", sums;
    "winnow/saved", how many times fewer bytes than dense; "winnow/density", the share of elements that
    were sent; "winnow/buckets", how many there are, those of DistributedDataParallel's first step
    included, "winnow/dense_buckets", of them those that travel dense now, and "winnow/trying_buckets",
    those whose schedule is still tried out; "winnow/poisoned" and "winnow/clipped", calls whose sum
    was not finite, or did not fit into 16 bits.

    Raises UsageError if Winnow is not attached, or is detached.
    """
    state = state_of(model)
    summary = _summary_of(state)
    totals: Stats = summary.totals if summary is not None else {}
    buckets = summary.buckets if summary is not None else []
    steps = state.overlap.steps
    sums = {"wire_bytes": float(totals.get("wire_bytes", 0)),
            "dense_wire_bytes": float(totals.get("dense_wire_bytes", 0)),
            **_milliseconds(state, summary)}
    found = {"steps": float(steps), **sums}
    found.update((f"{name}_per_step", value / max(1, steps)) for name, value in sums.items())
    found.update((name, float(totals.get(name, 0))) for name in ("calls", "poisoned", "clipped"))
    found["saved"] = _saved(totals)
    found["density"] = totals.get("kept", 0) / max(1, totals.get("count", 0))
    found["buckets"] = float(len(buckets))
    found["dense_buckets"] = float(sum(bucket["compressed"] == 0 for bucket in buckets))
    found["trying_buckets"] = float(sum(_state_of(bucket, steps) == "trying" for bucket in buckets))
    return {f"winnow/{name}": value for name, value in found.items()}


def report(model: Attached) -> str:
    """What the calls of this rank have done so far, as text: the times of a step, by the words that
    `metrics` explains; bytes by schedule; and a line a bucket with what it sent, by which schedule it
    goes now, whether that is settled, and why. DistributedDataParallel cuts other buckets after the
    first step, so there are lines for those before, which are over, and after. Local.

    Raises UsageError if Winnow is not attached, or is detached."""
    state = state_of(model)
    summary = _summary_of(state)
    if summary is None or not summary.buckets:
        return "winnow: no gradient was reduced yet"
    transport, words = state.reducer.transport, summary.words
    lines = [f"winnow: rank {transport.rank} of {transport.size}, compressor={words['compressor']}, "
             f"schedule={words['schedule']}, {summary.steps} steps"]
    if transport.size == 1:
        lines.append("one rank is alone: nothing is sent")
    elif state.lossless:
        lines.append(f"{'enable=0' if words['enable'] == '0' else words['compressor']}: nothing is "
                     "compressed, and each sum travels dense")
    trying = sum(_state_of(bucket, summary.steps) == "trying" for bucket in summary.buckets)
    if trying:
        lines.append(f"auto still tries schedules for {trying} of {len(summary.buckets)} buckets")
    return "\n\n".join(["\n".join(lines), _table(_times(state, summary), "lrl"),
                        _table(_by_schedule(summary), "lrrrr"), _table(_by_bucket(summary), "rrrrlll")])


def _times(state: State, summary: _Summary) -> List[Row]:
    names = {"reduce_ms": "reducing", "hidden_ms": "  hidden by the backward pass",
             "wait_ms": "  waited for", "messages_ms": "messages",
             "selection_ms": "selecting, coding, adding", "dense_ms": "dense, predicted"}
    times = _milliseconds(state, summary)
    rows: List[Row] = [("a step", "ms", "")]
    for name, value in times.items():
        note = ""
        if name == "hidden_ms":
            note = f"{100 * value / max(times['reduce_ms'], 1e-9):.0f} %"
        if name == "dense_ms":
            if value == 0:
                continue
            note = "by the links as measured, without waits for slower ranks"
        rows.append((names[name], f"{value / max(1, summary.steps):.2f}", note))
    if "selection_ms" not in times:
        rows.append(("times on a GPU", "-", "stats=1 has the device measure them"))
    return rows


def _by_schedule(summary: _Summary) -> List[Row]:
    rows: List[Row] = [("all calls by", "calls", "bytes", "dense bytes", "saved")]
    for name, stats in [*((one["schedule"] or "-", one) for one in summary.schedules),
                        ("all", summary.totals)]:
        rows.append((name, f"{stats['calls']:,}", f"{stats['wire_bytes']:,}",
                     f"{stats['dense_wire_bytes']:,}", f"{_saved(stats):.1f}x"))
    return rows


def _by_bucket(summary: _Summary) -> List[Row]:
    rows: List[Row] = [("elements", "calls", "bytes", "saved", "now", "", "why")]
    for bucket in summary.buckets:
        stats = bucket["totals"]
        rows.append((f"{bucket['count']:,}", f"{stats['calls']:,}", f"{stats['wire_bytes']:,}",
                     f"{_saved(stats):.1f}x", stats["schedule"] or "-",
                     _state_of(bucket, summary.steps), stats["reason"]))
    return rows


def _table(rows: Sequence[Row], sides: str) -> str:
    """Columns of which `sides` says whether they stand left or right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.ljust(width) if side == "l" else cell.rjust(width)
                               for cell, width, side in zip(row, widths, sides)).rstrip()
                     for row in rows)
