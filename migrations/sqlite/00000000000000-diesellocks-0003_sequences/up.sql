-- Gap-free sequences: one row per sequence, inserted by the first draw.
CREATE TABLE diesel_locks_sequences (
    name TEXT NOT NULL,
    scope TEXT NOT NULL,      -- the key of the sequence, empty if it has none
    last BIGINT NOT NULL,     -- the last number drawn
    PRIMARY KEY (name, scope)
) WITHOUT ROWID;
