DROP TABLE IF EXISTS diesel_locks_objects;
