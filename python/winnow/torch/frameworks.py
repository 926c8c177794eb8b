# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of frameworks: their own files are torch's, and beside them each rank has one of its own.

A framework that the program has not imported is left alone. Of one that it has, the methods that save
and load optimizers are wrapped; all ranks call these.
"""
import functools
import os
import shutil
import sys
from typing import Any, Callable, Iterable, List, NamedTuple, Optional, Sequence

import torch

from winnow.torch.pairing import pairing_of
from winnow.torch.plain import plain, saving_plain
from winnow.torch.rank_file import read, write
from winnow.torch.state import State
from winnow.torch.warn import warn
from winnow.torch.watch import meetings, states

FOLDER = "winnow"  # of the files, in a framework's own folder or behind the name of its file

Method = Callable[..., Any]


def _inner(optimizers: Iterable[Any]) -> List[torch.optim.Optimizer]:
    """torch's objects, which the framework has wrapped. Those of DeepSpeed are none."""
    found = []
    for optimizer in optimizers:
        while hasattr(optimizer, "optimizer"):
            optimizer = optimizer.optimizer
        if isinstance(optimizer, torch.optim.Optimizer):
            found.append(optimizer)
    return found


def _states_of(models: Sequence[Any], optimizers: Sequence[torch.optim.Optimizer]) -> List[State]:
    """Those that reduce for the models, in their order, then for the optimizers."""
    attached = [states.get(getattr(model, "_orig_mod", model)) for model in models if model is not None]
    attached += [pairing.state for pairing in map(pairing_of, optimizers) if pairing is not None]
    return [state for state in dict.fromkeys(attached) if state is not None and not state.is_detached]


def _numbered(folder: str, number: int) -> str:
    return folder if number == 0 else f"{folder}_{number}"


def _save(folder: Optional[str], models: Sequence[Any], optimizers: Iterable[Any]) -> None:
    for number, state in enumerate(_states_of(models, _inner(optimizers)) if folder is not None else []):
        write(_numbered(folder, number), state)


def _load(folder: Optional[str], models: Sequence[Any], optimizers: Iterable[Any]) -> None:
    """Models that enable() knows are attached now, so that no step comes before that."""
    inner = _inner(optimizers)
    for optimizer in inner:
        for meet in meetings:
            meet(optimizer)
    if folder is None:
        return
    found = _states_of(models, inner)
    for number, state in enumerate(found):
        if not read(_numbered(folder, number), state):
            warn("checkpoint", f"{_numbered(folder, number)}: no files of Winnow's ranks. So the "
                 "checkpoint is one of a run without Winnow, or what ranks had not sent is lost")
    if not found and os.path.isdir(folder):
        warn("checkpoint", f"{folder} has what ranks had not sent, and Winnow reduces for no model here: "
             "that is lost")


def _trainer_saves(original: Method) -> Method:
    def save(self: Any, output_dir: str) -> None:
        with saving_plain(_inner([self.optimizer])):
            original(self, output_dir)
        _save(os.path.join(output_dir, FOLDER), [self.model_wrapped], [self.optimizer])

    return save


def _trainer_loads(original: Method) -> Method:
    def load(self: Any, checkpoint: Any) -> None:
        original(self, checkpoint)
        if checkpoint is not None:
            _load(os.path.join(checkpoint, FOLDER), [self.model_wrapped], [self.optimizer])

    return load


def _accelerator_saves(original: Method) -> Method:
    def save_state(self: Any, *arguments: Any, **keywords: Any) -> Any:
        with saving_plain(_inner(self._optimizers)):
            folder = original(self, *arguments, **keywords)
        _save(os.path.join(folder, FOLDER), self._models, self._optimizers)
        return folder

    return save_state


def _accelerator_loads(original: Method) -> Method:
    def load_state(self: Any, *arguments: Any, **keywords: Any) -> None:
        folders: List[str] = []  # the one that it has chosen
        handle = self.register_load_state_pre_hook(lambda _, folder: folders.append(folder))
        try:
            original(self, *arguments, **keywords)
        finally:
            handle.remove()
        _load(os.path.join(folders[0], FOLDER), self._models, self._optimizers)

    return load_state


def _beside(path: Any) -> Optional[str]:
    """None for a URL."""
    if "://" in str(path):
        warn("url", f"{path}: what ranks have not sent is neither written to a URL nor read from one")
        return None
    return f"{os.path.realpath(path)}.{FOLDER}"


def _strategy_states(original: Method) -> Method:
    def optimizer_state(self: Any, optimizer: Any) -> Any:
        saved = original(self, optimizer)
        for inner in _inner([optimizer]):
            saved = plain(inner, saved)
        return saved

    return optimizer_state


def _strategy_saves(original: Method) -> Method:
    def save_checkpoint(self: Any, checkpoint: Any, filepath: Any, *arguments: Any, **keywords: Any) -> None:
        original(self, checkpoint, filepath, *arguments, **keywords)
        if "optimizer_states" in checkpoint:
            _save(_beside(filepath), [self.model], self.optimizers)

    return save_checkpoint


def _strategy_removes(original: Method) -> Method:
    def remove_checkpoint(self: Any, filepath: Any) -> None:
        original(self, filepath)
        folder = _beside(filepath) if self.is_global_zero else None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    return remove_checkpoint


def _strategy_loads(original: Method) -> Method:
    def load_optimizer_state_dict(self: Any, checkpoint: Any) -> None:
        original(self, checkpoint)
        _load(_beside(self.lightning_module.trainer.ckpt_path), [self.model], self.optimizers)

    return load_optimizer_state_dict


class _Wrapped(NamedTuple):
    modules: Sequence[str]
    kind: str
    method: str
    wrap: Callable[[Method], Method]


_TRAINER = ("transformers.trainer",)
_ACCELERATOR = ("accelerate.accelerator",)
_STRATEGY = ("lightning.pytorch.strategies.strategy", "pytorch_lightning.strategies.strategy")
_TABLE = (
    _Wrapped(_TRAINER, "Trainer", "_save_optimizer_and_scheduler", _trainer_saves),
    _Wrapped(_TRAINER, "Trainer", "_load_optimizer_and_scheduler", _trainer_loads),
    _Wrapped(_ACCELERATOR, "Accelerator", "save_state", _accelerator_saves),
    _Wrapped(_ACCELERATOR, "Accelerator", "load_state", _accelerator_loads),
    _Wrapped(_STRATEGY, "Strategy", "optimizer_state", _strategy_states),
    _Wrapped(_STRATEGY, "Strategy", "save_checkpoint", _strategy_saves),
    _Wrapped(_STRATEGY, "Strategy", "remove_checkpoint", _strategy_removes),
    _Wrapped(_STRATEGY, "Strategy", "load_optimizer_state_dict", _strategy_loads),
)


def follow() -> None:
    """From here on frameworks that the program has imported save and load what Winnow needs."""
    for module, row in ((module, row) for row in _TABLE for module in row.modules):
        kind = getattr(sys.modules.get(module), row.kind, None)
        if kind is None:
            continue
        original = getattr(kind, row.method, None)
        if original is None:
            warn(f"{module}.{row.method}", f"this version of {module} has no {row.kind}.{row.method}: its "
                 "checkpoints lack what ranks have not sent. Call winnow.torch.save_checkpoint and "
                 "load_checkpoint")
        elif not hasattr(original, "follows"):
            wrapper = functools.wraps(original)(row.wrap(original))
            wrapper.follows = True
            setattr(kind, row.method, wrapper)
