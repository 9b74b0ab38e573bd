"""What a launch would do, said before there is one."""

from __future__ import annotations

from notebook_accel.launch.plan.plan import Plan


def preview(planned: Plan) -> str:
    """What a launch would do, in one line."""
    config = planned.config
    steps = config.gradient_accumulation_steps
    parts = {
        f"{planned.size} rank{'s' if planned.size > 1 else ''} on {planned.place}": True,
        f"machine {config.node_rank} of {config.num_nodes}": config.num_nodes > 1 and not config.cluster,
        planned.backend: planned.world_size > 1,
        config.mixed_precision: config.mixed_precision != "no",
        config.strategy.upper(): config.strategy != "ddp",
        f"gradients of {steps} batches added up": steps > 1,
    }
    return "a launch now: " + " · ".join(part for part, counts in parts.items() if counts)
