-- The id as bytes: the collations that MySQL and MariaDB share treat 'a' and 'a ' as equal.
-- Its index is not unique: the object lock ensures that an id is stored once.
CREATE TABLE IF NOT EXISTS ingest_documents (
    seq BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    id VARBINARY(1020) NOT NULL,
    `timestamp` DATETIME(6) NOT NULL,
    digest VARBINARY(32) NOT NULL,
    body LONGBLOB NOT NULL,
    INDEX ingest_documents_id (id)
) ENGINE = InnoDB;
