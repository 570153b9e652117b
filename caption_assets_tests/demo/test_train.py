"""The demo model can be trained further from the weights in the package, and the result is a folder like the packaged one."""

import subprocess
import sys

import pytest

from caption_assets.demo import MODEL

pytest.importorskip("transformers")


@pytest.mark.long
def test_training_goes_on_from_the_package_without_forgetting(tmp_path):
    command = [
        sys.executable,
        "-m",
        "caption_assets.demo.train",
        str(tmp_path),
        "--minutes",
        "0.3",
        "--processes",
        "1",
        "--lr",
        "1e-5",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    steps = [line for line in done.stdout.splitlines() if "tokens right" in line]
    right = [float(line.split("tokens right ")[1].split()[0]) for line in steps]
    assert right and sum(right) / len(right) > 0.97
    assert {p.name for p in tmp_path.iterdir()} == {p.name for p in MODEL.iterdir()} | {"state.pt"}
