"""SQL: one statement in, a DataFrame or the report of a verb out."""
