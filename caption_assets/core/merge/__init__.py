"""The parts of the merge: records, their answers, and the files they end in."""
