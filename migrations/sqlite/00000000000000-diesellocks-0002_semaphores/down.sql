DROP TABLE diesel_fences;
DROP TABLE diesel_semaphores;
DROP TABLE diesel_slots;
