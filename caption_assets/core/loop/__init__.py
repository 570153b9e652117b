"""The moving parts of captioning: feed, ask, store, and the lease that is their heartbeat."""
