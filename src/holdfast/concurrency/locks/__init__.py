"""Locks: the exclusive right to decide on a table, shared with Hudi's own writers."""
