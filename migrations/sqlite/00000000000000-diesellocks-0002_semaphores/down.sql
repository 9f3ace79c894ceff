DROP TABLE diesel_locks_fences;
DROP TABLE diesel_locks_semaphores;
DROP TABLE diesel_locks_slots;
