/** The first line of a cell, which says where the cell runs. */

const ACCELERATE = /^%%accelerate(?:[ \t].*)?(?:\n|$)/;
const MAGIC = /^%%\S+/;

/** Whether a cell runs on every rank. */
export function runsOnRanks(source: string): boolean {
  return ACCELERATE.test(source);
}

/**
 * The cell with `%%accelerate` as its first line, or without it if it has it.
 * @throws Error - If the cell begins with another magic, which can't be combined with this one.
 */
export function toggled(source: string): string {
  if (runsOnRanks(source)) return source.replace(ACCELERATE, "");
  const other = MAGIC.exec(source)?.[0];
  if (other) throw new Error(`This cell begins with ${other}. Remove that line to run the cell on every rank.`);
  return `%%accelerate\n${source}`;
}
