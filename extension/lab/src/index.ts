/**
 * notebook-accel in the frame of JupyterLab and Notebook.
 *
 *     jobsPlugin.ts   ─ the sidebar with the user's jobs, and its commands
 *     statusPlugin.ts ─ the running job in the status bar
 *     server.ts       ─ requests to the Jupyter server
 *     jobs.ts         ─ the jobs, asked for while someone looks
 */
import jobs from "./jobsPlugin";
import status from "./statusPlugin";

export default [jobs, status];
