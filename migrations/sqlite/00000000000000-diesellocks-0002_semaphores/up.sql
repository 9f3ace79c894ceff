-- Semaphores: one row per slot, numbered from 1 without gaps. A slot is free if expires_us has passed. Times are in
-- microseconds since 1970-01-01 UTC. datetime(expires_us / 1e6, 'unixepoch') converts one.
CREATE TABLE diesel_locks_slots (
    name TEXT NOT NULL,
    number INTEGER NOT NULL,
    token BLOB,                     -- identifies the holder, NULL if the slot is not held
    holder TEXT,                    -- the text of the last holder
    fence BIGINT NOT NULL,          -- the fence of the last grant
    acquired_us BIGINT NOT NULL,    -- the time of the last grant
    expires_us BIGINT NOT NULL,     -- the end of the lease
    hold_until_us BIGINT NOT NULL,  -- a slot that is released earlier stays unavailable until this time; 0: none
    release_requested_us BIGINT NOT NULL DEFAULT 0,  -- when the holder was asked to release the slot; 0: it was not
    data TEXT,                      -- what the holder has set, NULL at each grant
    PRIMARY KEY (name, number)
) WITHOUT ROWID;

-- Finds a free slot among many held slots.
CREATE INDEX diesel_locks_slots_expiry ON diesel_locks_slots (name, expires_us);

-- Registered semaphores. The slots up to their number of permits are not purged.
CREATE TABLE diesel_locks_semaphores (
    name TEXT NOT NULL PRIMARY KEY,
    permits INTEGER NOT NULL CHECK (permits >= 0)
) WITHOUT ROWID;

-- One row: no grant so far has a larger fence. All these tables are WITHOUT ROWID, so that an INSERT does not change
-- last_insert_rowid().
CREATE TABLE diesel_locks_fences (
    id INTEGER NOT NULL PRIMARY KEY,
    fence BIGINT NOT NULL
) WITHOUT ROWID;

INSERT INTO diesel_locks_fences (id, fence) VALUES (1, 0);
