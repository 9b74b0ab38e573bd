/** The names of the extension's commands. */
export const SHOW_JOBS = "notebook-accel:show-jobs";
export const ATTACH = "notebook-accel:attach";
export const STOP = "notebook-accel:stop";
/** Where the command palette lists them. */
export const CATEGORY = "notebook-accel";
