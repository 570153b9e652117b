"""What a shard still owes the engine, computed from the store."""
