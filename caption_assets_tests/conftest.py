"""Fixtures that every test may use."""

from caption_assets_tests.servers import moto_server, s3_keys, s3_server

__all__ = ["moto_server", "s3_keys", "s3_server"]
