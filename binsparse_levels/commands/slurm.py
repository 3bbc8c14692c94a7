"""The script that submits the stages of a build to Slurm."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from ..building import Stage
from ..containers.base import is_url

_HEAD = """\
#!/bin/bash
# The build in {work}: a job for each stage, which begins when the one before is done.
# Arguments are options for sbatch, such as --mem=4G. Where a job fails, run this again: what is done is not repeated.
set -eu
job=
submit() {{
    name=$1 tasks=$2 command=$3
    shift 3
    job=$(sbatch --parsable --requeue --kill-on-invalid-dep=yes ${{job:+"--dependency=afterok:$job"}} \\
        --job-name="$name" --array="0-$((tasks - 1))" --wrap="$command" "$@")
    job=${{job%%;*}}
    echo "$name: job $job, tasks: $tasks"
}}
"""


def slurm_script(work: str, stages: Sequence[Stage], tasks: int) -> str:
    """A script for bash that submits these stages of the build in a work folder. tasks: of a stage, at most."""
    place = work if is_url(work) else os.path.abspath(work)
    lines = []
    for stage in stages:
        count = tasks if stage.total is None else max(min(tasks, stage.total), 1)
        share = f'step {shlex.quote(place)} {stage.name} "$SLURM_ARRAY_TASK_ID" --of {count}'
        command = f"commit {shlex.quote(place)}" if stage.name == "commit" else share
        lines.append(f'submit {stage.name} {count} {shlex.quote(f"binsparse-levels {command}")} "$@"\n')
    return _HEAD.format(work=place) + "".join(lines)
