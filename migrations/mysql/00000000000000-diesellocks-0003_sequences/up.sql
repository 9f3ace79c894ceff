-- Each statement commits by itself. A migration that was interrupted between two statements can be run again.

-- Gap-free sequences: one row per sequence, inserted by the first draw. A transaction that draws a number locks the
-- row until it ends.
-- VARBINARY compares names as bytes.
CREATE TABLE IF NOT EXISTS diesel_locks_sequences (
    name VARBINARY(1020) NOT NULL,
    scope VARBINARY(1020) NOT NULL,    -- the key of the sequence, empty if it has none
    last BIGINT NOT NULL,              -- the last number drawn
    PRIMARY KEY (name, scope)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
