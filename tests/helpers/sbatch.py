"""A stand-in for Slurm's sbatch: each task of an array job is a process here, and some are killed.

The folder SBATCH_FOLDER keeps the end of each job, and what its tasks print. SBATCH_KILLED names tasks, such as
`pack:0 write:1`, that are killed behind the first line they print, as where a node fails: they are run again. Those of
SBATCH_LOST are killed and not run again, once.
"""

import argparse
import concurrent.futures
import contextlib
import itertools
import os
import pathlib
import signal
import subprocess
import sys


def main():
    parser = argparse.ArgumentParser("sbatch")
    for name in ("parsable", "requeue"):
        parser.add_argument(f"--{name}", action="store_true", required=True)
    for name in ("array", "wrap", "job-name", "kill-on-invalid-dep"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--dependency")
    parser.add_argument("--mem")
    asked = parser.parse_args()
    folder = pathlib.Path(os.environ["SBATCH_FOLDER"])
    job = next(k for k in itertools.count(1) if not (folder / f"{k}").exists())
    before = asked.dependency.removeprefix("afterok:") if asked.dependency else None
    if before is not None and (folder / before).read_text() != "done":
        (folder / f"{job}").write_text("cancelled")
    else:
        first, _, last = asked.array.partition("-")
        tasks = range(int(first), int(last or first) + 1)
        with concurrent.futures.ThreadPoolExecutor(len(tasks)) as pool:
            done = list(pool.map(lambda task: ends_well(folder, job, asked, task), tasks))
        (folder / f"{job}").write_text("done" if all(done) else "failed")
    print(job)


def start(asked, task):
    environment = {**os.environ, "SLURM_ARRAY_TASK_ID": str(task)}
    return subprocess.Popen(
        ["/bin/sh", "-c", asked.wrap], env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def ends_well(folder, job, asked, task):
    process = start(asked, task)
    name, log = f"{asked.job_name}:{task}", folder / f"{asked.job_name}-{job}_{task}.log"
    killed, lost = (name in os.environ.get(x, "").split() for x in ("SBATCH_KILLED", "SBATCH_LOST"))
    lost = lost and not (folder / f"lost {name}").exists()
    first = process.stdout.readline()
    if first and (killed or lost):
        os.killpg(process.pid, signal.SIGKILL)
    log.write_text(first + process.stdout.read())
    if process.wait() == -signal.SIGKILL and lost:
        (folder / f"lost {name}").touch()
    elif process.returncode == -signal.SIGKILL:
        process = start(asked, task)
        with log.open("a") as more:
            more.write(process.stdout.read())
        process.wait()
    process.stdout.close()
    return process.returncode == 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
