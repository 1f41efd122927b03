from __future__ import annotations

import contextlib
from typing import Any

from tiny import in_fit, squared_error

from perf.probes.phases import BACKWARD, CRITERION, FORWARD, OPTIMIZER, OTHER, CurrentPhase, phase_hooks
from perf.rfdetr_api import Stepper

ONE_STEP = [FORWARD, OTHER, CRITERION, OTHER, BACKWARD, OTHER, OPTIMIZER]


def hooks_of(stepper: Stepper) -> tuple[int, ...]:
    module = stepper.built.module
    hooked = (module.model, module.criterion)
    counts = [len(hooks) for part in hooked for hooks in (part._forward_hooks, part._forward_pre_hooks)]
    return (*counts, len(stepper.built.trainer.callbacks))


def test_a_step_goes_through_the_phases_in_order() -> None:
    def body(stepper: Stepper) -> list[str]:
        entered: list[str] = []
        for _ in range(2):
            with phase_hooks(stepper, entered.append):
                stepper.step(stepper.prepare())
        stepper.step(stepper.prepare())  # unseen: the hooks are gone
        return entered

    assert in_fit(body) == ONE_STEP * 2


def test_hooks_are_gone_after_a_step_that_raised() -> None:
    errors = [ValueError("no loss")]

    def failing_once(outputs: Any, targets: Any) -> Any:
        if errors:
            raise errors.pop()
        return squared_error(outputs, targets)

    def body(stepper: Stepper) -> tuple[tuple[int, ...], ...]:
        before = hooks_of(stepper)
        batch = stepper.prepare()
        with contextlib.suppress(ValueError), phase_hooks(stepper, lambda _: None):
            during = hooks_of(stepper)
            stepper.step(batch)
        assert not errors
        return before, during, hooks_of(stepper)

    before, during, after = in_fit(body, failing_once)
    assert after == before
    assert all(more > less for more, less in zip(during, before, strict=True))


def test_code_in_a_phase_can_ask_which_it_is() -> None:
    phase = CurrentPhase()
    seen: list[str] = []

    def asking(outputs: Any, targets: Any) -> Any:
        seen.append(phase.name)
        outputs.register_hook(lambda _: seen.append(phase.name))
        return squared_error(outputs, targets)

    def body(stepper: Stepper) -> list[str]:
        with phase_hooks(stepper, phase.enter):
            stepper.step(stepper.prepare())
        return list(seen)

    assert phase.name == OTHER
    assert in_fit(body, asking) == [CRITERION, BACKWARD]
