-- One row per slot of a semaphore, numbered from 1 without gaps. A slot is free when expires_us has passed
-- and no transaction has its row locked. All times are microseconds since 1970 UTC by this server's clock;
-- to_timestamp(expires_us / 1e6) shows one. Logged: leases and fences outlive a crash.
-- COLLATE "C": names are compared as bytes.
CREATE TABLE diesel_locks_slots (
    name VARCHAR(255) COLLATE "C" NOT NULL,
    number INTEGER NOT NULL,
    token BYTEA,                -- of the holder; NULL when nobody holds the slot
    holder VARCHAR(255),        -- what the last holder called itself
    fence BIGINT NOT NULL,      -- of the last grant
    acquired_us BIGINT NOT NULL,
    expires_us BIGINT NOT NULL,
    hold_until_us BIGINT NOT NULL,    -- a release before that keeps the slot until then
    -- A slot has one row. The fence is in the key so that the row is found among those that it was before: of
    -- one number it is the last in the index. They can't be cleared away while a session has an old snapshot.
    PRIMARY KEY (name, number, fence)
);

-- Finds a free slot among many that are held.
CREATE INDEX diesel_locks_slots_expiry ON diesel_locks_slots (name, expires_us) WHERE number > 100;

-- Finds the largest fence of a semaphore.
CREATE INDEX diesel_locks_slots_fences ON diesel_locks_slots (name, fence);

-- Semaphores that applications have registered, whose slots stay.
CREATE TABLE diesel_locks_semaphores (
    name VARCHAR(255) COLLATE "C" PRIMARY KEY,
    permits INTEGER NOT NULL
);

-- One row: each grant has a larger fence, and no slot that was removed had one. Locked by whoever adds or
-- removes slots.
CREATE TABLE diesel_locks_fences (
    id INTEGER PRIMARY KEY,
    fence BIGINT NOT NULL
);

INSERT INTO diesel_locks_fences (id, fence) VALUES (1, 0);

-- How many slots there are, and whether one is free, locked or not. STABLE: all its statements have the snapshot of
-- the statement that calls it, so that a semaphore that is never full is never seen full.
CREATE FUNCTION diesel_locks_look_at_slots(
    semaphore TEXT, permits INTEGER, OUT slots INTEGER, OUT any_free BOOLEAN
) STABLE LANGUAGE plpgsql AS $$
DECLARE
    now_us BIGINT := extract(epoch FROM clock_timestamp()) * 1000000;
    ends_us BIGINT;
BEGIN
    SELECT number INTO slots FROM diesel_locks_slots WHERE name = semaphore ORDER BY number DESC LIMIT 1;
    FOR candidate IN 1 .. least(permits, 100) LOOP
        SELECT expires_us INTO ends_us FROM diesel_locks_slots
            WHERE name = semaphore AND number BETWEEN candidate AND candidate
            ORDER BY number DESC, fence DESC LIMIT 1;
        any_free := ends_us <= now_us;
        EXIT WHEN any_free;
    END LOOP;
    any_free := coalesce(any_free, false);
    IF permits > 100 AND NOT any_free THEN
        PERFORM FROM diesel_locks_slots
            WHERE name = semaphore AND number > 100 AND expires_us <= now_us ORDER BY expires_us LIMIT 1;
        any_free := FOUND;
    END IF;
END
$$;

-- Leases a free slot until lease_us from now on, or, without a token, locks one until the transaction ends. Does
-- not wait for sessions that have slots locked; lock_timeout ends the wait for a locked table.
-- Returns the fence of the lease, whose last 17 bits are the slot's number, or the number of the slot that it locked.
-- A negative number is a refusal:
--   -1             the table is locked (only diesel_locks_acquire_slot_in_transaction; this function fails)
--   -2, -3         the transaction is at REPEATABLE READ, at SERIALIZABLE
--   -4 - 2 * n     there are n slots (permits + 1: there are more than permits), and none is free
--   -5 - 2 * n     the same, and a slot is free that another session has locked
-- One number, because a function that returns columns is called as a table, which costs a tenth of the call.
-- first: the number to look at first. among: look at these numbers only, however many slots there are.
-- A function, because it keeps its plans for the session, and each of them looks up one row. One statement over all
-- numbers has a plan so expensive by the planner's estimate that the server compiles it (jit) at each call.
CREATE FUNCTION diesel_locks_acquire_slot(
    semaphore TEXT, permits INTEGER, first INTEGER, among INTEGER[], in_transaction BOOLEAN,
    new_token BYTEA, new_holder TEXT, lease_us BIGINT, at_least_us BIGINT
) RETURNS BIGINT LANGUAGE plpgsql SET lock_timeout = '50ms' AS $$
DECLARE
    granted BIGINT;
    slots INTEGER;
    any_free BOOLEAN;
    now_us BIGINT := extract(epoch FROM clock_timestamp()) * 1000000;
    many BOOLEAN := among IS NULL AND permits > 100;
    candidates INTEGER := coalesce(cardinality(among), least(permits, 100));
    candidate INTEGER;
    row_at TID;
BEGIN
    -- A transaction that keeps to an old snapshot can't see whether a slot is free. A statement alone has a new one.
    IF in_transaction AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RETURN CASE current_setting('transaction_isolation') WHEN 'repeatable read' THEN -2 ELSE -3 END;
    END IF;
    IF among IS NULL THEN
        -- Not by the last number: its row changes as often as it is granted, and there is mostly no row above.
        PERFORM FROM diesel_locks_slots WHERE name = semaphore AND number > permits ORDER BY number DESC LIMIT 1;
        IF FOUND THEN
            RETURN -4 - 2 * (permits::bigint + 1);
        END IF;
    END IF;
    FOR step IN 0 .. candidates - CASE WHEN many THEN 0 ELSE 1 END LOOP
        IF step = 1 AND many THEN
            SELECT ctid INTO row_at FROM diesel_locks_slots
                WHERE name = semaphore AND number > 100 AND expires_us <= now_us
                ORDER BY expires_us LIMIT 1 FOR UPDATE SKIP LOCKED;
            EXIT WHEN row_at IS NOT NULL;
        END IF;
        candidate := CASE
            WHEN among IS NOT NULL THEN among[1 + (first - 1 + step) % candidates]
            WHEN step = 0 THEN first
            ELSE 1 + (first - 1 + step) % candidates
        END;
        -- The row of a number is the last of its entries in the index. The entries before it are of rows that are
        -- gone; there are many when another session has an old snapshot. A row that another session has locked, or
        -- has been granted since, is passed over. (With an equality for the number, the planner may take the index
        -- that has no number.)
        SELECT free.at INTO row_at
            FROM (
                SELECT ctid AS at FROM diesel_locks_slots
                WHERE name = semaphore AND number BETWEEN candidate AND candidate
                ORDER BY number DESC, fence DESC LIMIT 1
            ) AS newest,
            LATERAL (
                SELECT ctid AS at FROM diesel_locks_slots
                WHERE ctid = newest.at AND expires_us <= now_us FOR UPDATE SKIP LOCKED
            ) AS free;
        EXIT WHEN row_at IS NOT NULL;
    END LOOP;
    IF row_at IS NULL THEN
        SELECT * INTO slots, any_free FROM diesel_locks_look_at_slots(semaphore, permits);
        RETURN -4 - 2 * coalesce(slots, 0)::bigint - any_free::integer;
    ELSIF new_token IS NULL THEN
        SELECT number INTO granted FROM diesel_locks_slots WHERE ctid = row_at;
        -- The holder of a lease on it that has ended can't renew it: another holds the slot since.
        UPDATE diesel_locks_slots SET token = NULL WHERE ctid = row_at AND token IS NOT NULL;
    ELSE
        now_us := extract(epoch FROM clock_timestamp()) * 1000000;
        -- The fence is larger than those of all slots that are there and of those that were removed.
        UPDATE diesel_locks_slots SET
            token = new_token,
            holder = new_holder,
            fence = (greatest(now_us / 64, (greatest(
                fence,
                (SELECT newest.fence FROM diesel_locks_slots AS newest
                    WHERE newest.name = semaphore ORDER BY newest.fence DESC LIMIT 1),
                (SELECT removed.fence FROM diesel_locks_fences AS removed WHERE removed.id = 1)
            ) >> 17) + 1) << 17) | number,
            acquired_us = now_us,
            expires_us = now_us + lease_us,
            hold_until_us = now_us + at_least_us
            WHERE ctid = row_at
            RETURNING fence INTO granted;
    END IF;
    RETURN granted;
END
$$;

-- As diesel_locks_acquire_slot, in an open transaction, which goes on when the table is locked. A function of its own,
-- because EXCEPTION makes a subtransaction.
CREATE FUNCTION diesel_locks_acquire_slot_in_transaction(
    semaphore TEXT, permits INTEGER, first INTEGER, among INTEGER[],
    new_token BYTEA, new_holder TEXT, lease_us BIGINT, at_least_us BIGINT
) RETURNS BIGINT LANGUAGE plpgsql AS $$
BEGIN
    RETURN diesel_locks_acquire_slot(
        semaphore, permits, first, among, true, new_token, new_holder, lease_us, at_least_us);
EXCEPTION WHEN lock_not_available THEN
    RETURN -1;
END
$$;
