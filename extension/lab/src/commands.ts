/** The names of the extension's commands. */
export const SHOW_JOBS = "notebook-accel:show-jobs";
export const ATTACH = "notebook-accel:attach";
export const STOP = "notebook-accel:stop";
export const TOGGLE_ACCELERATE = "notebook-accel:toggle-accelerate";
/** Where the command palette lists them. */
export const CATEGORY = "notebook-accel";
