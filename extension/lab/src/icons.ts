/** The icons of the extension. */
import { LabIcon } from "@jupyterlab/ui-components";

/** Four ranks. */
export const jobsIcon = new LabIcon({
  name: "notebook-accel:jobs",
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24"><g class="jp-icon3" fill="#616161">' +
    '<rect x="3" y="4" width="18" height="3" rx="1"/><rect x="3" y="8.5" width="13" height="3" rx="1"/>' +
    '<rect x="3" y="13" width="16" height="3" rx="1"/><rect x="3" y="17.5" width="9" height="3" rx="1"/></g></svg>',
});
