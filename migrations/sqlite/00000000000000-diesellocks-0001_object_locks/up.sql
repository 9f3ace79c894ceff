-- Holds kept rows only: a write transaction locks the whole database, so that a transient lock needs
-- no row. Kept rows are there so that counts and purges mean the same as on the other engines.
CREATE TABLE diesel_locks_objects (
    id TEXT NOT NULL PRIMARY KEY,
    kept BOOLEAN NOT NULL
) WITHOUT ROWID;
