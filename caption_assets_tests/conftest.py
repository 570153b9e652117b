"""Fixtures that every test may use."""

from caption_assets_tests.servers import moto_server, s3_keys, s3_server
from caption_assets_tests.vllm_fixtures import shared_vllm, vllm_engine, vllm_state

__all__ = ["moto_server", "s3_keys", "s3_server", "shared_vllm", "vllm_engine", "vllm_state"]
