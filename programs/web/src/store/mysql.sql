CREATE TABLE IF NOT EXISTS web_documents (
    -- Compared as bytes: a collation treats different texts as equal.
    id VARBINARY(1020) NOT NULL PRIMARY KEY,
    changed_us BIGINT NOT NULL,
    body LONGBLOB NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS web_accounts (
    id BIGINT NOT NULL PRIMARY KEY,
    balance BIGINT NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS web_passes (
    meeting VARBINARY(1020) NOT NULL,
    number BIGINT NOT NULL,
    PRIMARY KEY (meeting, number)
) ENGINE = InnoDB;

-- One row: the permits of each semaphore, which all instances share.
CREATE TABLE IF NOT EXISTS web_settings (
    id BIGINT NOT NULL PRIMARY KEY,
    permits BIGINT NOT NULL
) ENGINE = InnoDB;
