"""Where the endpoints of a fleet come from."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from caption_assets.config import EngineConfig
from caption_assets.engines.base import WrongSettings


@dataclass(frozen=True)
class Place:
    """One endpoint: the address before /chat/completions, its key and the environment variable that the key came from."""

    url: str
    key: str | None = field(default=None, repr=False)
    key_name: str | None = None


class Backend(Protocol):
    """Finds or makes the endpoints. The calls may block and run in a thread; `stop` is set when nobody waits any more."""

    owned: bool
    """Whether the endpoints are servers of this program, which it can start again."""

    @property
    def size(self) -> int:
        """How many endpoints there will be."""
        ...

    def known(self) -> Sequence[str]:
        """The addresses that are there now, without starting anything."""
        ...

    def places(self, stop: threading.Event) -> Sequence[Place]:
        """All endpoints, ready. Raises EngineDown."""
        ...

    def revive(self, index: int, stop: threading.Event) -> Place:
        """Endpoint `index` again after it was lost, perhaps at another address. Raises EngineDown when it has died too often."""
        ...

    def condemn(self, index: int) -> None:
        """Endpoint `index` lies, or answers nothing: a server of this program is not to be used again. Does not block."""
        ...

    def touch(self) -> None:
        """They are in use; called every few seconds."""
        ...


class RunningEndpoints:
    """Kind openai: endpoints that run already."""

    owned = False

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self.size = len(config.endpoints)

    def known(self) -> Sequence[str]:
        return self._config.endpoints

    def places(self, stop: threading.Event) -> Sequence[Place]:
        name = self._config.api_key_env
        key = os.environ.get(name) if name else None
        if name and not key:
            raise WrongSettings(f"engine.api_key_env: the environment variable {name} is not set")
        return [Place(url, key, name) for url in self._config.endpoints]

    def revive(self, index: int, stop: threading.Event) -> Place:
        return self.places(stop)[index]

    def condemn(self, index: int) -> None:
        pass

    def touch(self) -> None:
        pass
