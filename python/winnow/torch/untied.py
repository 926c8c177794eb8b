# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What copies of an optimizer have in place of a State."""
from typing import Any

from winnow._library import UsageError


class Untied:
    """Of an optimizer that was copied or pickled: it moves other parameters than those of the model
    whose gradients Winnow reduces."""

    def __getattr__(self, _name: str) -> Any:
        raise UsageError("this optimizer of winnow.torch is a copy, which belongs to no model: make one "
                         "with model= and give it state_dict() of the copy by load_state_dict")
