-- Gap-free sequences: one row per sequence, inserted by the first draw. A transaction that draws a number locks the
-- row until it ends.
-- COLLATE "C" compares names as bytes.
CREATE TABLE diesel_locks_sequences (
    name VARCHAR(1020) COLLATE "C" NOT NULL,
    scope VARCHAR(1020) COLLATE "C" NOT NULL,    -- the key of the sequence, empty if it has none
    last BIGINT NOT NULL,                        -- the last number drawn
    PRIMARY KEY (name, scope)
);
