"""The preview of a launch, for `%accelerate`, its status and `notebook-accel config`."""

from __future__ import annotations

from notebook_accel.launch.plan.plan import Plan


def preview(plan: Plan) -> str:
    """What a launch would do, in one line."""
    config = plan.config
    steps = config.gradient_accumulation_steps
    parts = {
        f"{plan.size} rank{'s' if plan.size > 1 else ''} on {plan.device_text}": True,
        f"machine {config.node_rank} of {config.num_nodes}": config.num_nodes > 1 and not config.cluster,
        plan.backend: plan.world_size > 1,
        config.mixed_precision: config.mixed_precision != "no",
        config.strategy.upper(): config.strategy != "ddp",
        f"gradients of {steps} batches added up": steps > 1,
    }
    return "a launch now: " + " · ".join(part for part, counts in parts.items() if counts)
