"""The parts of planning: what lies in the source, what is new, and how it becomes shards."""
