"""Runs a command that ends with whoever started it: `python -m caption_assets.engines.leash COMMAND …`, stdin a pipe.

The pipe closes when its other end dies, however it dies; then the command's whole process group is ended. The exit code is the
command's own.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys

from caption_assets.engines.processes import Process, die_with_parent, end_group, identify


def main(command: list[str]) -> int:
    child = subprocess.Popen(  # noqa: S603
        command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=die_with_parent
    )
    leader = identify(child.pid) or Process(child.pid, "dead")
    while child.poll() is None:
        ready, _, _ = select.select([sys.stdin], [], [], 0.2)
        if ready and not os.read(sys.stdin.fileno(), 1):
            break
    end_group(leader, 5 if child.poll() is None else 0)
    return child.wait()


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.exit(code if code >= 0 else 128 - code)
