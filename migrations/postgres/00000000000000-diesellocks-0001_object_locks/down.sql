DROP FUNCTION diesel_locks_try_acquire(TEXT[], BOOLEAN);
DROP FUNCTION diesel_locks_acquire(TEXT[], BOOLEAN);
DROP FUNCTION diesel_locks_acquire_one(TEXT, BOOLEAN);
DROP TABLE diesel_locks_objects;
