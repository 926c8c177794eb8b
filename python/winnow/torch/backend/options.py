# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What one group of the backend compresses, and how."""
import datetime
import fnmatch
import os
from typing import Any, Dict, Optional

from winnow._library import UsageError
from winnow.arguments import shown
from winnow.reducer import Reducer
from winnow.transports import local_transports

RULES = ("backward", "group")
_RULE, _GROUPS = "WINNOW_TORCH_RULE", "WINNOW_TORCH_GROUPS"


class GroupOptions:
    """Of one group, as `pg_options` of init_process_group and new_group, or beside the backend's name:

        backend_override={"between": ("winnow", winnow.torch.GroupOptions("topk:0.01,int8"))}

    `compressor` and the keywords are the options of winnow.Reducer; "none" leaves all sums to torch.
    `rule` says which sums are compressed: "backward", those of a backward pass; "group", all sums of
    gradients' types and sizes on this group, for a group of its own whose gradients are summed after the
    pass. None: what WINNOW_TORCH_RULE says, or "backward". `timeout`: of the group; None: the job's.
    Variables of the environment (WINNOW_COMPRESSOR) win, as for winnow.Reducer.

    What is wrong with them is a UsageError on all ranks where the group is made.
    """

    def __init__(self, compressor: str = "topk:0.01", *, rule: Optional[str] = None,
                 timeout: Optional[datetime.timedelta] = None, **options: Any):
        self._timeout = timeout  # by the name of torch's own options
        self.compressor, self.options = compressor, options
        self.rule = os.environ.get(_RULE, "backward") if rule is None else rule
        self.text = self.refusal = ""
        try:
            if self.rule not in RULES:
                raise UsageError(f"rule is {shown(self.rule)}: must be {' or '.join(RULES)}")
            with local_transports(1)[0] as alone, Reducer(alone, compressor, **options) as checked:
                self.text = checked.options
        except UsageError as error:
            self.refusal = str(error)  # for all ranks
        self._words: Dict[str, str] = dict(word.split("=", 1) for word in self.text.split())

    def __repr__(self) -> str:
        return f"GroupOptions({self.compressor!r}, rule={self.rule!r})"

    @property
    def min_bytes(self) -> int:
        """Sums of fewer bytes are torch's."""
        return int(self._words["min_bytes"])

    @property
    def compresses(self) -> bool:
        """Whether any sum may be."""
        return self._words["compressor"] != "none" and self._words["enable"] != "0"

    @property
    def lossless(self) -> bool:
        """Whether sums lose nothing, so that they may be of gradients whatever the optimizer is."""
        return not self.compresses or self.in_use == "topk:1"

    @property
    def codes_rows(self) -> bool:
        """Whether what is not sent of sparse sums waits."""
        return self._words["rows"] != "exact"

    @property
    def in_use(self) -> str:
        """The compressor, also where a variable of the environment has named it."""
        return self._words["compressor"]


def is_named(*names: str) -> bool:
    """Whether WINNOW_TORCH_GROUPS, patterns of names, has one of these of a group."""
    patterns = filter(None, (one.strip() for one in os.environ.get(_GROUPS, "").split(",")))
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns for name in names)


def options_of(given: Any) -> GroupOptions:
    """What pg_options say; the defaults if they are None. UsageError for those of another backend."""
    if given is None:
        return GroupOptions()
    if not isinstance(given, GroupOptions):
        raise UsageError(f"pg_options of the backend winnow is a {type(given).__name__}: must be a "
                         "winnow.torch.GroupOptions")
    return given
