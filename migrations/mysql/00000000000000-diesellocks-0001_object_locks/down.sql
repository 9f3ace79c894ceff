DROP TABLE IF EXISTS diesel_locks_wanted;
DROP TABLE IF EXISTS diesel_locks_objects;
