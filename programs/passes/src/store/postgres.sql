CREATE TABLE IF NOT EXISTS meeting (
    id BIGINT NOT NULL PRIMARY KEY,
    info TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS pass (
    id BIGINT NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    meeting_id BIGINT NOT NULL REFERENCES meeting (id),
    number BIGINT NOT NULL
);

-- Not unique: that a number is there once is up to the gap-free sequence.
CREATE INDEX IF NOT EXISTS pass_number ON pass (meeting_id, number);
