-- One row per gap-free sequence, made by the first transaction that draws from it. A row belongs to the
-- transaction that drew last until that ends.
-- VARBINARY: names are compared as bytes.
CREATE TABLE diesel_sequences (
    name VARBINARY(1020) NOT NULL,
    scope VARBINARY(1020) NOT NULL,    -- whose sequence; empty when there is one of that name
    last BIGINT NOT NULL,              -- the number drawn last
    PRIMARY KEY (name, scope)
) ENGINE = InnoDB;
