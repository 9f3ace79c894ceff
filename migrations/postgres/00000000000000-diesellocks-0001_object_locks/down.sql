DROP FUNCTION diesel_locks_try_acquire(TEXT[], BOOLEAN, TEXT[], BOOLEAN);
DROP FUNCTION diesel_locks_acquire(TEXT[], BOOLEAN, TEXT[], BOOLEAN);
DROP FUNCTION diesel_locks_want(TEXT[], TEXT[], BIGINT);
DROP FUNCTION diesel_locks_admits(TEXT[]);
DROP FUNCTION diesel_locks_acquire_one(TEXT, BOOLEAN, BOOLEAN);
DROP TABLE diesel_locks_wanted;
DROP TABLE diesel_locks_objects;
