//! The statements of an increment.

use diesel::prelude::*;
use diesel_locks::{Error, Sequence};

use crate::abortable_barrier::Participant;
use crate::store::Store;

/// The statements of a strategy on an engine. In their texts `?` stands for the number to write.
#[derive(Clone, Copy)]
pub(crate) enum Increment {
    /// Reads the number, then writes the next one.
    ReadThenWrite(Reading),
    /// Adds one in the database.
    Add {
        add: &'static str,
        /// Reads the number, if `add` does not return it.
        result: Option<&'static str>,
    },
    /// `next_number` of diesel-locks.
    Draw,
}

#[derive(Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) declare: Option<&'static str>,
    pub(crate) read: &'static str,
    pub(crate) write: &'static str,
    /// Whether reading locks the row. Otherwise all connections may read before one writes.
    pub(crate) locks: bool,
}

impl Increment {
    /// Takes the next number, in the open transaction.
    pub(crate) fn draw<C: Store>(
        self,
        conn: &mut C,
        sequence: &Sequence,
        participant: &mut Participant<'_>,
    ) -> Result<i64, Error> {
        match self {
            Self::ReadThenWrite(reading) => {
                let number = reading.read(conn)?;
                if !reading.locks {
                    participant.wait();
                }
                Ok(reading.write(conn, number)?)
            }
            Self::Add { add, result: None } => Ok(conn.number(add)?),
            Self::Add {
                add,
                result: Some(result),
            } => {
                conn.run(add, 0)?;
                Ok(conn.number(result)?)
            }
            Self::Draw => conn.next_number(sequence),
        }
    }
}

impl Reading {
    fn read<C: Store>(self, conn: &mut C) -> QueryResult<i64> {
        if let Some(declare) = self.declare {
            conn.run(declare, 0)?;
        }
        conn.number(self.read)
    }

    fn write<C: Store>(self, conn: &mut C, number: i64) -> QueryResult<i64> {
        conn.run(self.write, number + 1)?;
        Ok(number + 1)
    }
}
