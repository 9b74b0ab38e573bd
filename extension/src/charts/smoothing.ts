import type { Column } from "./table";

/** The number of steps of equal width that a run counts as, however many it has. */
const RUN_LENGTH = 1000;
const MOST_WEIGHT = 0.999;

/**
 * The exponential moving average of a line, without the bias towards 0 at its beginning. The weight of the past falls with
 * the distance in steps, as a share of the run, so that the line is the same whether it is thinned or zoomed into. This is
 * Weights & Biases' "time weighted EMA" (https://docs.wandb.ai/guides/app/features/panels/line-plot/smoothing).
 *
 * @param strength From 0, which smooths nothing, to 1.
 * @param length The number of steps of the run.
 */
export function smooth(x: number[], y: Column, strength: number, length: number): Column {
  if (strength <= 0) return y;
  const weight = Math.min(Math.sqrt(strength), MOST_WEIGHT);
  let sum = 0;
  let total = 0;
  let before: number | undefined;
  return y.map((value, index) => {
    if (value === null) return null;
    const at = x[index] as number;
    const distance = before === undefined ? 0 : ((at - before) / (length || 1)) * RUN_LENGTH;
    const kept = weight ** distance;
    before = at;
    sum = sum * kept + value;
    total = total * kept + 1;
    return sum / total;
  });
}
