DROP TABLE diesel_locks_sequences;
