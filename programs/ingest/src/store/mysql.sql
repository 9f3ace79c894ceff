-- The id as bytes: the collations that MySQL and MariaDB share take 'a' and 'a ' for the same.
-- Its index is not unique: that an id is stored once is up to the object lock.
CREATE TABLE IF NOT EXISTS ingest_documents (
    seq BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    id VARBINARY(1020) NOT NULL,
    `timestamp` DATETIME(6) NOT NULL,
    digest VARBINARY(32) NOT NULL,
    body LONGBLOB NOT NULL,
    `generated` BOOLEAN NOT NULL,
    INDEX ingest_documents_id (id)
) ENGINE = InnoDB;
