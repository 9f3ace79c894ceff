CREATE TABLE IF NOT EXISTS meeting (
    id BIGINT NOT NULL PRIMARY KEY,
    info TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS pass (
    id BIGINT NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    meeting_id BIGINT NOT NULL REFERENCES meeting (id),
    number BIGINT NOT NULL
);

-- Not unique: the gap-free sequence ensures that a number is there once.
CREATE INDEX IF NOT EXISTS pass_number ON pass (meeting_id, number);
