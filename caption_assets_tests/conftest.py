"""Fixtures that every test may use."""

import os
import signal
from pathlib import Path

from caption_assets_tests.finished import finished
from caption_assets_tests.servers import moto_server, postgres, s3_keys, s3_server
from caption_assets_tests.vllm_fixtures import shared_vllm, vllm_engine, vllm_state

__all__ = ["finished", "moto_server", "postgres", "s3_keys", "s3_server", "shared_vllm", "vllm_engine", "vllm_state"]

# Processes that tests start in other folders run modules of this package, which is not installed.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH")]))

# A shell starts background jobs with interrupts ignored, and what they start inherits it.
signal.signal(signal.SIGINT, signal.default_int_handler)
