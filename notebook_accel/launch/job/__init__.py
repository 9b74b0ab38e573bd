"""The state of a job, folded from its events: what each rank is doing, why it failed, and descriptions as text.

Runs in any process, and does no input or output.

job.py            ─ `Job`, the handle that users get: waits, cancels, and shows; start reading here;
                    its methods that show where time goes are in `insight/`
controls.py       ─ its methods that change a running training
rules.py          ─ `when`, which makes a rule for a metric, and its methods that add and remove rules
requests.py       ─ how these methods reach the code that runs the job, and its ranks
waiting.py        ─ waits for the end, a stall, or a value of a metric
job_state.py      ─ the fold: an event changes the state
rank_state.py     ─ the same for one rank
report_log.py     ─ every report, for `job.metrics`
metric_charts.py  ─ a chart of each metric, merged over ranks and thinned; metric_text.py is a chart in words
output_log.py     ─ what the ranks have written and displayed; output_events.py reads it as events again
collectives.py    ─ where ranks disagree about their last collectives
rank_error.py     ─ the exception for the failures of ranks
location.py       ─ where the ranks are, as text, and their stacks
progress.py       ─ summaries of the state, which all views share; headline.py words them
describe.py       ─ a job as lines of text
resources.py      ─ what ranks use of their machines, as text
energy.py         ─ the energy that they have used
text.py           ─ formats names and numbers
"""
