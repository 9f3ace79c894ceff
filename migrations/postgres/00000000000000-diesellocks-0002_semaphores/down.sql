DROP FUNCTION diesel_locks_acquire_slot_in_transaction(TEXT, INTEGER, INTEGER, INTEGER[], BYTEA, TEXT, BIGINT, BIGINT);
DROP FUNCTION diesel_locks_acquire_slot(TEXT, INTEGER, INTEGER, INTEGER[], BOOLEAN, BYTEA, TEXT, BIGINT, BIGINT);
DROP FUNCTION diesel_locks_unlocked(TEXT);
DROP FUNCTION diesel_locks_look_at_slots(TEXT, INTEGER);
DROP FUNCTION diesel_locks_timeline_us();
DROP FUNCTION diesel_locks_permits(TEXT);
DROP TABLE diesel_locks_fences;
DROP TABLE diesel_locks_semaphores;
DROP TABLE diesel_locks_slots;
