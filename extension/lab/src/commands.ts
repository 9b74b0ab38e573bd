/** The names of the extension's commands. */
export const SHOW_JOBS = "notebook-accel:show-jobs";
/** Inserts a cell that shows a job. Its argument is the ID of the `job`; by default, it is the one that runs. `header.ts` uses it,
 * too. */
export const ATTACH = "notebook-accel:attach";
/** Resumes a job in a new cell, which runs. Its argument is the ID of the `job`; `html_page.py` uses it, too. */
export const RESUME = "notebook-accel:resume";
/** Shows the panel of a job in a tab. Its argument is the ID of the `job`; by default, it is the one that runs. The board of a
 * sweep, `board.py`, uses it, too. */
export const OPEN = "notebook-accel:open-job";
export const STOP = "notebook-accel:stop";
export const TOGGLE_ACCELERATE = "notebook-accel:toggle-accelerate";
/** Where the command palette lists them. */
export const CATEGORY = "notebook-accel";
