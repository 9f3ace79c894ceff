//! Detects a broken client library, which returns texts and bytes as empty values.

use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::mysql::{Mysql, MysqlValue};
use diesel::sql_types::Binary;

use super::execute::Run;
use super::sql;
use crate::Error;
use crate::link::Link;

/// The value of a column that is never empty. Reading an empty one fails with [`Error::BrokenClientLibrary`].
#[derive(Debug, FromSqlRow)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl FromSql<Binary, Mysql> for Bytes {
    fn from_sql(value: MysqlValue<'_>) -> deserialize::Result<Self> {
        match <Vec<u8> as FromSql<Binary, Mysql>>::from_sql(value)? {
            bytes if bytes.is_empty() => Err(Box::new(Error::BrokenClientLibrary)),
            bytes => Ok(Self(bytes)),
        }
    }
}

/// Fails with [`Error::BrokenClientLibrary`] if the client library loses a text.
pub(super) async fn check_client_library(
    conn: &mut impl Link<Backend = Mysql>,
) -> Result<(), Error> {
    let text: String = sql::AnyText {}.get_result(conn).await?;
    if text.is_empty() {
        return Err(Error::BrokenClientLibrary);
    }
    Ok(())
}
