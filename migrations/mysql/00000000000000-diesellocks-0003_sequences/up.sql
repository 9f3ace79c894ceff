-- Each statement commits by itself, and can be run again: a migration may be ended between two of them.
-- One row per gap-free sequence, made by the first transaction that draws from it. A row belongs to the
-- transaction that drew last until that ends.
-- VARBINARY: names are compared as bytes.
CREATE TABLE IF NOT EXISTS diesel_locks_sequences (
    name VARBINARY(1020) NOT NULL,
    scope VARBINARY(1020) NOT NULL,    -- whose sequence; empty when there is one of that name
    last BIGINT NOT NULL,              -- the number drawn last
    PRIMARY KEY (name, scope)
) ENGINE = InnoDB;
