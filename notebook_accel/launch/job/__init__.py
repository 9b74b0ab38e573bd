"""The state of a job, folded from its events: what each rank is doing, why it failed, and descriptions as text.

Runs in any process, and does no input or output.

job.py              ─ `Job`, the handle that users get: waits, cancels, and shows; start reading here;
                      its methods that show where time goes are in `insight/`
controls/           ─ its methods that change a running training
collectives.py      ─ where ranks disagree about their last collectives
requests/           ─ how these methods reach the code that runs the job, and its ranks
job_state.py        ─ the fold: an event changes the state
rank_state.py       ─ the same for one rank; memory_history.py and kept_displays.py are parts of it
metrics/            ─ what ranks have reported, and the charts of it
rank_error.py       ─ the exception for the failures of ranks
location.py         ─ where the ranks are, as text
progress.py         ─ summaries of the state, which all views share
describe.py         ─ a job as lines of text
logs/, stacks.py    ─ what ranks have written, and where they are
resources/          ─ what ranks use of their machines, as text
requested_stacks.py ─ the stacks that were requested in the panel
text.py             ─ formats names and numbers
"""
