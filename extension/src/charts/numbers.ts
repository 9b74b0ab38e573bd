const PREFIXES = ["", "k", "M", "G", "T", "P"];
const MOST_DIGITS = 12;

/** Four significant digits, with an exponent only if it helps, as the kernel's `text.value` writes numbers. */
export function formatValue(value: number, digits = 4): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e4 && size < 1e7) return value.toFixed(digits > 4 && value % 1 !== 0 ? 2 : 0);
  if (size >= 1e-4 && size < 1e7) return String(Number(value.toPrecision(digits)));
  return Number(value.toPrecision(digits)).toExponential().replace("e+", "e");
}

/** Numbers at an axis, with as many digits as it takes to tell them apart. */
export function tickTexts(ticks: (number | null)[]): string[] {
  const known = ticks.filter((tick) => tick !== null);
  for (let digits = 4; ; digits += 1) {
    const texts = ticks.map((tick) => (tick === null ? "" : formatValue(tick, digits)));
    if (digits === MOST_DIGITS || new Set(texts.filter(Boolean)).size === new Set(known).size) return texts;
  }
}

/** A step: in full below a million, otherwise with a prefix such as `1.25M`. */
export function formatStep(step: number): string {
  if (Math.abs(step) < 1e6) return String(Math.round(step * 10) / 10);
  const power = Math.min(PREFIXES.length - 1, Math.floor(Math.log10(Math.abs(step)) / 3));
  return `${Number((step / 1000 ** power).toPrecision(6))}${PREFIXES[power]}`;
}

/** The numbers at a logarithmic axis: powers of ten, and between them 2 and 5 times as much if these are few. */
export function logTicks(low: number, high: number): number[] {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const steps = last - first > 3 ? [1] : [1, 2, 5];
  const every = Math.max(1, Math.ceil((last - first) / 8));
  const ticks: number[] = [];
  for (let power = first; power <= last; power += every) ticks.push(...steps.map((step) => Number(`${step}e${power}`)));
  return ticks.filter((tick) => tick >= low && tick <= high);
}
