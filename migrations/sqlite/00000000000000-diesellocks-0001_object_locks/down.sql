DROP TABLE diesel_locks_objects;
