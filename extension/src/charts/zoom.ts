/** A range from one whole step to another one, within the range of a run. */
export function clampRange([low, high]: [number, number], [first, last]: [number, number]): [number, number] {
  const width = Math.min(last - first, Math.max(1, Math.ceil(high) - Math.floor(low)));
  const left = Math.max(first, Math.min(last - width, Math.floor(low)));
  return [left, left + width];
}

/** A range that is so many times as wide, in which a step keeps its place. */
export function zoomed([low, high]: [number, number], step: number, factor: number): [number, number] {
  return [step - (step - low) * factor, step + (high - step) * factor];
}

/** The index of the step that is nearest to another one; `steps` are in order. */
export function nearestIndex(steps: ArrayLike<number>, step: number): number {
  let nearest = 0;
  for (let index = 1; index < steps.length; index += 1) {
    const isNearer = Math.abs((steps[index] as number) - step) < Math.abs((steps[nearest] as number) - step);
    if (isNearer) nearest = index;
  }
  return nearest;
}
