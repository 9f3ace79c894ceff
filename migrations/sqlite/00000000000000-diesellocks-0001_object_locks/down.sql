DROP TABLE diesel_object_locks;
