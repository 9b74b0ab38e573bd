import { make, OWN_KEYS } from "../dom";

/** The milliseconds without typing after which a search begins. */
const PAUSE = 250;

const STREAMS: [string, string][] = [
  ["", "stdout and stderr"],
  ["stdout", "stdout"],
  ["stderr", "stderr"],
];
const LEVELS: [string, string][] = [
  ["0", "All levels"],
  ["1", "Warnings and errors"],
  ["2", "Errors"],
];

/** Which lines of a log are shown. */
export interface Filter {
  /** What a line contains; upper and lower case are the same. */
  text: string;
  /** `stdout`, `stderr`, or empty for both. */
  stream: string;
  /** The least level: 1 for warnings, 2 for errors. */
  level: number;
}

/** The fields that choose which lines are shown. */
export class FilterTools {
  readonly element: HTMLElement;
  #search: HTMLInputElement;
  #stream: HTMLSelectElement;
  #level: HTMLSelectElement;
  #timer = 0;

  /**
   * @param owner Whose lines they are, such as `rank 3`.
   * @param onInput Called as the filter changes.
   * @param onPause Called once the user has stopped typing.
   */
  constructor(owner: string, onInput: () => void, onPause: () => void) {
    const search = { type: "search", placeholder: "Filter", "aria-label": `Filter the lines of ${owner}`, ...OWN_KEYS };
    this.#search = make("input", "na-search", search);
    this.#stream = choice(STREAMS, `Stream of the lines of ${owner}`);
    this.#level = choice(LEVELS, `Level of the lines of ${owner}`);
    const changed = () => {
      clearTimeout(this.#timer);
      this.#timer = window.setTimeout(onPause, PAUSE);
      onInput();
    };
    for (const field of [this.#search, this.#stream, this.#level]) {
      field.addEventListener("input", changed);
      field.addEventListener("keydown", (event) => event.stopPropagation()); // the notebook has shortcuts
    }
    this.element = make("span", "na-filters", {}, this.#search, this.#stream, this.#level);
  }

  get filter(): Filter {
    return {
      text: this.#search.value.toLowerCase(),
      stream: this.#stream.value,
      level: Number(this.#level.value),
    };
  }

  get isActive(): boolean {
    const { text, stream, level } = this.filter;
    return text !== "" || stream !== "" || level > 0;
  }

  /** Whether the stream and the level of lines are known. */
  set hasDetails(known: boolean) {
    this.#stream.disabled = !known;
    this.#level.disabled = !known;
  }
}

function choice(options: [string, string][], label: string): HTMLSelectElement {
  const elements = options.map(([value, name]) => make("option", "", { value }, name));
  return make("select", "na-select", { "aria-label": label, ...OWN_KEYS }, ...elements);
}
