CREATE TABLE IF NOT EXISTS ingest_documents (
    seq BIGINT NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT NOT NULL,
    "timestamp" TIMESTAMP NOT NULL,
    digest BYTEA NOT NULL,
    body BYTEA NOT NULL
);

-- Not unique: the object lock ensures that an id is stored once.
CREATE INDEX IF NOT EXISTS ingest_documents_id ON ingest_documents (id);
