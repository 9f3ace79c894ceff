DROP TABLE IF EXISTS diesel_object_locks;
