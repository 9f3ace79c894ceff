DROP TABLE IF EXISTS diesel_sequences;
