/** Which charts the user wants to see, and in which order. */
export interface Choice {
  /** Names of metrics in the user's order; others follow in the order in which they were first reported. */
  order: string[];
  hidden: string[];
}

/** The most charts that the kernel draws. */
export const MOST_CHARTS = 12;
const KEY = "notebook-accel:charts:";

/** All names in the user's order. */
export function ordered(names: string[], choice: Choice): string[] {
  const first = choice.order.filter((name) => names.includes(name));
  return [...first, ...names.filter((name) => !first.includes(name))];
}

/** The names of the charts to show. */
export function visible(names: string[], choice: Choice): string[] {
  return ordered(names, choice)
    .filter((name) => !choice.hidden.includes(name))
    .slice(0, MOST_CHARTS);
}

/** The choice after a chart was hidden or shown. If all places are taken, a chart that is shown takes the last of them. */
export function toggled(names: string[], choice: Choice, name: string): Choice {
  const shown = visible(names, choice);
  if (shown.includes(name)) return { ...choice, hidden: [...choice.hidden, name] };
  const hidden = choice.hidden.filter((each) => each !== name);
  const rest = ordered(names, choice).filter((each) => each !== name);
  const last = shown.length < MOST_CHARTS ? rest.indexOf(shown.at(-1) ?? "") + 1 : rest.indexOf(shown.at(-1) ?? "");
  return { hidden, order: [...rest.slice(0, last), name, ...rest.slice(last)] };
}

/** The choice after a chart was moved by so many places. */
export function moved(names: string[], choice: Choice, name: string, by: number): Choice {
  const order = ordered(names, choice);
  const from = order.indexOf(name);
  const to = Math.max(0, Math.min(order.length - 1, from + by));
  order.splice(to, 0, ...order.splice(from, 1));
  return { ...choice, order };
}

/** Reads the choice that the user made for an earlier job of this name. */
export function load(job: string): Choice {
  try {
    const found = JSON.parse(localStorage.getItem(KEY + job) ?? "{}") as Partial<Choice>;
    return { order: strings(found.order), hidden: strings(found.hidden) };
  } catch {
    return { order: [], hidden: [] }; // the browser stores nothing, or something else
  }
}

export function save(job: string, choice: Choice): void {
  try {
    localStorage.setItem(KEY + job, JSON.stringify(choice));
  } catch {
    // The browser stores nothing: the choice is lost with the page.
  }
}

function strings(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((each) => typeof each === "string") : [];
}
