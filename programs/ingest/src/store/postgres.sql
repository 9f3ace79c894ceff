CREATE TABLE IF NOT EXISTS ingest_documents (
    seq BIGINT NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT NOT NULL,
    "timestamp" TIMESTAMP NOT NULL,
    digest BYTEA NOT NULL,
    body BYTEA NOT NULL,
    generated BOOLEAN NOT NULL
);

-- Not unique: that an id is stored once is up to the object lock.
CREATE INDEX IF NOT EXISTS ingest_documents_id ON ingest_documents (id);
