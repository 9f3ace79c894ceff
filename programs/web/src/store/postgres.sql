CREATE TABLE IF NOT EXISTS web_documents (
    id TEXT NOT NULL PRIMARY KEY,
    changed_us BIGINT NOT NULL,
    body BYTEA NOT NULL
);

CREATE TABLE IF NOT EXISTS web_accounts (
    id BIGINT NOT NULL PRIMARY KEY,
    balance BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS web_passes (
    meeting TEXT NOT NULL,
    number BIGINT NOT NULL,
    PRIMARY KEY (meeting, number)
);

-- One row: the permits of each semaphore, which all instances share.
CREATE TABLE IF NOT EXISTS web_settings (
    id BIGINT NOT NULL PRIMARY KEY,
    permits BIGINT NOT NULL
);
