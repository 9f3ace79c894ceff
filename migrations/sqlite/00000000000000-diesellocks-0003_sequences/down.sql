DROP TABLE diesel_sequences;
