"""Replies as they were stored, and the text inside them."""
