DROP TABLE IF EXISTS diesel_fences;
DROP TABLE IF EXISTS diesel_semaphores;
DROP TABLE IF EXISTS diesel_slots;
