"""`caption-assets engine`: the vLLM servers of this machine that runs share."""

from __future__ import annotations

from caption_assets.commands import terminal
from caption_assets.commands.workplace import DONE
from caption_assets.core.report.text import plural


def status() -> int:
    from caption_assets.engines.vllm_server import engine_status

    servers = engine_status()
    if not servers:
        print("no engine is running")
        return DONE
    terminal.table(
        ("model", "state", "endpoint", "pid", "idle"), [(s.model, s.state, s.endpoint, s.pid, s.idle) for s in servers]
    )
    return DONE


def stop() -> int:
    from caption_assets.engines.vllm_server import stop_engines

    print(f"stopped {plural(stop_engines(), 'engine')}")
    return DONE
