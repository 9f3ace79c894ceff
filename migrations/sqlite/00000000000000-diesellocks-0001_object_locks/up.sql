-- Object locks: one row per kept lock. The write lock of the database is the object lock, so a transient lock needs no
-- row. Kept rows exist so that purge_object_locks returns what it returns on the other engines.
CREATE TABLE diesel_locks_objects (
    id TEXT NOT NULL PRIMARY KEY,
    kept BOOLEAN NOT NULL
) WITHOUT ROWID;
