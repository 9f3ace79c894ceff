-- One row per gap-free sequence, made by the first transaction that draws from it.
CREATE TABLE diesel_locks_sequences (
    name TEXT NOT NULL,
    scope TEXT NOT NULL,      -- whose sequence; empty when there is one of that name
    last BIGINT NOT NULL,     -- the number drawn last
    PRIMARY KEY (name, scope)
) WITHOUT ROWID;
