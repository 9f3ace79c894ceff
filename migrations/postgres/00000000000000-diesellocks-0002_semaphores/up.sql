-- One row per slot of a semaphore, numbered from 1 without gaps. A slot is free when expires_us has passed
-- and no transaction has its row locked. All times are microseconds since 1970 UTC by this server's clock;
-- to_timestamp(expires_us / 1e6) shows one. Logged: leases and fences outlive a crash.
-- COLLATE "C": names are compared as bytes.
CREATE TABLE diesel_slots (
    name VARCHAR(255) COLLATE "C" NOT NULL,
    number INTEGER NOT NULL,
    token BYTEA,                -- of the holder; NULL when nobody holds the slot
    holder VARCHAR(255),        -- what the last holder called itself
    fence BIGINT NOT NULL,      -- of the last grant
    acquired_us BIGINT NOT NULL,
    expires_us BIGINT NOT NULL,
    keep_us BIGINT NOT NULL,    -- a release before that keeps the slot until then
    -- A slot has one row. The fence is in the key so that the row is found among those that it was before: of
    -- one number it is the last in the index. They can't be cleared away while a session has an old snapshot.
    PRIMARY KEY (name, number, fence)
);

-- Finds a free slot among many that are held.
CREATE INDEX diesel_slots_expiry ON diesel_slots (name, expires_us) WHERE number > 100;

-- Finds the largest fence where there are too many rows to read them all.
CREATE INDEX diesel_slots_fences ON diesel_slots (name, fence) WHERE number > 100;

-- Semaphores that applications have registered, whose slots stay.
CREATE TABLE diesel_semaphores (
    name VARCHAR(255) COLLATE "C" PRIMARY KEY,
    permits INTEGER NOT NULL
);

-- One row: each grant has a larger fence, and no slot that was removed had one. Locked by whoever adds or
-- removes slots.
CREATE TABLE diesel_fences (
    id INTEGER PRIMARY KEY,
    fence BIGINT NOT NULL
);

INSERT INTO diesel_fences (id, fence) VALUES (1, 0);
