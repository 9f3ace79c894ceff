DROP TABLE IF EXISTS diesel_locks_fences;
DROP TABLE IF EXISTS diesel_locks_semaphores;
DROP TABLE IF EXISTS diesel_locks_slots;
