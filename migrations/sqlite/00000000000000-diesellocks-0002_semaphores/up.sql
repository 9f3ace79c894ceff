-- One row per slot of a semaphore, numbered from 1 without gaps. A slot is free when expires_us has passed.
-- All times are microseconds since 1970 UTC; datetime(expires_us / 1e6, 'unixepoch') shows one.
CREATE TABLE diesel_locks_slots (
    name TEXT NOT NULL,
    number INTEGER NOT NULL,
    token BLOB,                     -- of the holder; NULL when nobody holds the slot
    holder TEXT,                    -- what the last holder called itself
    fence BIGINT NOT NULL,          -- of the last grant
    acquired_us BIGINT NOT NULL,
    expires_us BIGINT NOT NULL,
    hold_until_us BIGINT NOT NULL,        -- a release before that keeps the slot until then
    PRIMARY KEY (name, number)
) WITHOUT ROWID;

-- Finds a free slot among many that are held.
CREATE INDEX diesel_locks_slots_expiry ON diesel_locks_slots (name, expires_us);

-- Semaphores that applications have registered, whose slots stay.
CREATE TABLE diesel_locks_semaphores (
    name TEXT NOT NULL PRIMARY KEY,
    permits INTEGER NOT NULL
) WITHOUT ROWID;

-- One row: no fence was larger. WITHOUT ROWID, as all of these tables: an INSERT leaves last_insert_rowid() as it was.
CREATE TABLE diesel_locks_fences (
    id INTEGER NOT NULL PRIMARY KEY,
    fence BIGINT NOT NULL
) WITHOUT ROWID;

INSERT INTO diesel_locks_fences (id, fence) VALUES (1, 0);
