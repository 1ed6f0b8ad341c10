"""Stand-ins for sbatch, srun, sacct and scontrol, which run the jobs of a script on this machine
with SLURM's variables.

`install` puts them on a PATH. srun writes the process id of its command to JOB.pid in the folder,
and `scontrol requeue` runs the script of a job again.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(os.environ.get("SLURM_COMMANDS", "."))


def install(folder: Path) -> dict[str, str]:
    """Writes the commands into a folder; returns the environment variables that use them."""
    folder.mkdir()
    for name in ("sbatch", "srun", "sacct", "scontrol"):
        command = folder / name
        command.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {name} "$@"\n')
        command.chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "SLURM_COMMANDS": str(folder)}


def sbatch(script: str) -> None:
    """Starts the job of a script, or one for each task of its array: 0, 1, ..."""
    text = Path(script).read_text()
    job = 100 + len(list(FOLDER.glob("*.script")))
    (FOLDER / f"{job}.script").write_text(text)
    array = re.search(r"#SBATCH --array=0-(\d+)", text)
    for task in range(int(array[1]) + 1) if array else [None]:
        variables = {
            "SLURM_JOB_ID": f"{job}{'' if task is None else task}",
            "SLURM_NTASKS": "1",
            "SLURM_JOB_NUM_NODES": "1",
            "SLURM_JOB_NODELIST": "localhost",
            "SLURM_JOB_NAME": "train",
        }
        if task is not None:
            variables |= {"SLURM_ARRAY_JOB_ID": f"{job}", "SLURM_ARRAY_TASK_ID": f"{task}"}
        subprocess.Popen(
            [sys.executable, __file__, "run", _name(variables), script],
            env=os.environ | variables,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    print(f"Submitted batch job {job}")


def _name(variables: Mapping[str, str]) -> str:
    """The number of a job, as sacct prints it: 100, or 100_0 of an array."""
    if "SLURM_ARRAY_JOB_ID" in variables:
        return f"{variables['SLURM_ARRAY_JOB_ID']}_{variables['SLURM_ARRAY_TASK_ID']}"
    return variables["SLURM_JOB_ID"]


def run(job: str, script: str) -> None:
    """Runs the script of a job, again after `scontrol requeue`."""
    while True:
        (FOLDER / f"{job}.state").write_text("RUNNING")
        code = subprocess.run(["bash", script]).returncode
        try:
            (FOLDER / f"{job}.requeue").unlink()
        except FileNotFoundError:
            break
    (FOLDER / f"{job}.state").write_text("FAILED" if code else "COMPLETED")


def srun(*arguments: str) -> None:
    command = arguments[arguments.index(sys.executable) :]
    job = _name(os.environ)
    variables = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
    with open(FOLDER / f"{job}.log", "a") as log:
        child = subprocess.Popen(
            command, env=os.environ | variables, stdout=log, stderr=subprocess.STDOUT
        )
        (FOLDER / f"{job}.pid").write_text(str(child.pid))
        sys.exit(child.wait())


def sacct(*_arguments: str) -> None:
    print("JobID|State|NodeList")
    for state in sorted(FOLDER.glob("*.state")):
        print(f"{state.stem}|{state.read_text()}|localhost")


def scontrol(action: str, job: str) -> None:
    assert action == "requeue"
    (FOLDER / f"{job}.requeue").touch()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
