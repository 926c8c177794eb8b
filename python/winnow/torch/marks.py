# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What an optimizer must know of the passes since its last step."""
import weakref
from typing import Any, Iterable, MutableMapping, Optional

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from winnow._library import UsageError


class Marks:
    """Of one State. A backward pass sets them, a step clears those of the parameters that it moves."""

    def __init__(self) -> None:
        # Who has prepared its gradient. No parameter is held: its hooks may reach the model, which
        # holds the State.
        self._prepared: MutableMapping[torch.Tensor, "weakref.ref[Any]"] = WeakTensorKeyDictionary()
        self.ahead = False  # the weights are inside of look_ahead now
        self.looked = False  # some pass has been inside of look_ahead
        self.automatic: Any = None  # the Twins of a model that is attached with an optimizer
        self.undoes = False  # the reducer keeps what discard_step needs

    def __bool__(self) -> bool:
        return bool(self._prepared)

    def add(self, parameter: torch.Tensor, name: str, owner: Any) -> None:
        """`owner` prepares this gradient for its next step."""
        if parameter not in self._prepared:
            self._prepared[parameter] = weakref.ref(owner)
            return
        other = self._prepared[parameter]()
        if other not in (owner, None):
            raise UsageError(f"two optimizers of winnow.torch move {name}: drop one, with all that "
                             "refers to it")
        raise UsageError(
            f"the gradient of {name} is reduced a second time before optimizer.step(). Run all passes "
            "but the last before a step, forward and backward, inside ddp.no_sync(), also those whose "
            "gradients you throw away; call winnow.torch.skip_step(ddp) in place of a step that you "
            "leave out, or attach_scaler if a GradScaler does")

    def any_of(self, parameters: Iterable[torch.Tensor]) -> Optional[torch.Tensor]:
        """One whose gradient is prepared."""
        return next((p for p in parameters if p in self._prepared), None)

    def take(self, parameter: torch.Tensor) -> bool:
        """Whether its gradient is prepared. From here on it is not."""
        return self._prepared.pop(parameter, None) is not None

    def clear(self) -> None:
        """No step will apply the gradients that were reduced last."""
        self._prepared.clear()
