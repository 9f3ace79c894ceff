-- One row per gap-free sequence, made by the first transaction that draws from it. A row belongs to the
-- transaction that drew last until that ends.
-- COLLATE "C": compared as bytes.
CREATE TABLE diesel_locks_sequences (
    name VARCHAR(255) COLLATE "C" NOT NULL,
    scope VARCHAR(255) COLLATE "C" NOT NULL,    -- whose sequence; empty when there is one of that name
    last BIGINT NOT NULL,                       -- the number drawn last
    PRIMARY KEY (name, scope)
);
