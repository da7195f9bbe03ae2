"""Objective, ties and sensitivities of a report as lines of text."""

from __future__ import annotations

from ...spec.report.report import (
    Advice,
    Largest,
    Prediction,
    Report,
    SearchResult,
    Sensitivity,
    StackAnswer,
)
from ...spec.technique import Values
from ...spec.techniques import TECHNIQUES
from ...spec.units import SECONDS_PER_HOUR, format_count, format_duration, format_number
from .report_text import half_width_text, interval_text, shape_text

MIN_SHOWN_CHANGE = 5e-6
"""Changes of the step below this fraction are no use to anybody."""
RESOURCES = {
    "device.flops": "FLOP/s",
    "device.bandwidth": "memory bandwidth",
    "device.hbm": "memory",
}


def cost_text(prediction: Prediction) -> str:
    """Format the cost of a plan; '' without prices."""
    if prediction.cost_per_step is None or prediction.cost_per_million_tokens is None:
        return ""
    million = format_number(prediction.cost_per_million_tokens)
    step = format_number(prediction.cost_per_step)
    currency = prediction.currency
    return f"{million} {currency} a million tokens   {step} {currency} a step"


def training_text(prediction: Prediction) -> str:
    """Format a whole training; '' without a number of tokens."""
    training = prediction.training
    if training is None:
        return ""
    steps = "1 step" if training.steps == 1 else f"{grouped(training.steps)} steps"
    hours = training.device_s / SECONDS_PER_HOUR
    parts = [
        f"{format_count(training.tokens)} tokens in {steps}",
        f"{format_duration(training.time_s)} {half_width_text(prediction)}",
        f"{grouped(hours)} device-hours",
    ]
    if training.cost is not None:
        parts.append(f"{grouped(training.cost)} {prediction.currency}")
    return "   ".join(parts)


def grouped(value: float) -> str:
    """A figure with commas between thousands, in four digits below one thousand."""
    return f"{value:,.0f}" if value >= 1000 else format_number(value)


def largest_text(largest: Largest) -> str:
    """Format the largest size that fits, and the next one's fate."""
    what = "samples a step" if largest.what == "global_batch" else "tokens a sample"
    text = f"{largest.size} {what}"
    if largest.limited_by == "model":
        return f"{text}, which is all that the model takes"
    if largest.limited_by == "deadline":
        return f"{text} are the most found before the deadline"
    sure = "proven" if largest.beyond_proven else "no plan found in the work allowed"
    return f"{text} fit, {largest.beyond} do not ({sure}); {len(largest.tried)} sizes tried"


ABOUT = {"global_batch": "--global-batch", "seq_len": "--seq-len", "devices": "devices"}


def advice_text(item: Advice, techniques: Values = TECHNIQUES) -> str:
    """Format advice in one line."""
    if item.about == "fragile":
        text = f"this plan is fragile: {item.why}"
        if item.plan is None or item.gain is None:
            return text
        sound = shape_text(item.plan, techniques)
        return f"{text}; the best that is not, {-item.gain:+.1%}: {sound}"
    gain = f"{item.gain or 0:+.0%} tokens/s a device"
    return f"{ABOUT[item.about]} {item.value} gives {gain}: {item.why}"


def common_stack_text(answer: StackAnswer, step_s: float | None = None) -> str:
    """Format the answer for another stack.

    Args:
        answer: with its stack.
        step_s: the step of the plan that it stands beside; a faster one names its gain.
    """
    if answer.plan is None or answer.prediction is None:
        return f"{answer.stack}: no plan of it fits, or agrees with the pins"
    prediction = answer.prediction
    text = f"{answer.stack}: {interval_text(prediction)}, {shape_text(answer.plan)}"
    if step_s is None or prediction.step_time_s >= step_s:
        return text
    return f"{text}; its step is {1 - prediction.step_time_s / step_s:.1%} shorter"


def tie_text(search: SearchResult) -> str:
    """Format the number of tied plans and the simplest of them."""
    tie = search.tie_set
    if tie.size == 1:
        return f"no other plan within {tie.within * 100:g} %, which the model's error exceeds"
    kinds = "one strategy" if tie.strategies == 1 else f"{tie.strategies} strategies"
    count = f"{tie.size} plans within {tie.within * 100:g} %, which the model's error exceeds"
    return f"{count}; the simplest of them has {kinds}"


def sensitivity_parts(report: Report) -> list[str]:
    """List ``FLOP/s -0.85 %`` by resource, greatest first; empty without prices."""
    sensitivities = sorted(report.sensitivities, key=lambda s: (s.step_time_change, s.resource))
    shown = [s for s in sensitivities if abs(s.step_time_change) >= MIN_SHOWN_CHANGE]
    parts = [f"{resource_text(s)} {step_change_text(s)}" for s in shown]
    return parts or (["nothing changes the step"] if sensitivities else [])


def resource_text(item: Sensitivity) -> str:
    """A resource as people call it."""
    text = RESOURCES.get(item.resource)
    return text or item.resource.removesuffix(".bandwidth").replace("_", "-") + " links"


def step_change_text(item: Sensitivity) -> str:
    """Format the step's change in percent, with a sign."""
    change = item.step_time_change * 100
    return "0 %" if abs(item.step_time_change) < MIN_SHOWN_CHANGE else f"{change:+.2g} %"
