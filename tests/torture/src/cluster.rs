//! Clusters: which statements show their state.

use std::sync::mpsc::channel;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::ValueEnum;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use serde::{Deserialize, Serialize};

use crate::engine::{Engine, with_connection};
use crate::sessions::Sessions;

/// How long nodes may take until all of them are there again: one that was killed gets what it missed first.
const TIMEOUT: Duration = Duration::from_secs(300);
/// How long a node may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// A kind of cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub(crate) enum Cluster {
    /// MariaDB's, all of whose nodes take writes.
    Galera,
    /// MySQL's, one of whose members takes writes.
    GroupReplication,
    /// PostgreSQL's, with synchronous replication: one of its nodes takes writes.
    Patroni,
}

impl Cluster {
    /// Waits until all nodes are there and, on Galera, have applied what the others have committed. Calls `stuck` with the number of a node
    /// that the others wait for in vain, as those do who watch over a cluster.
    pub(crate) fn await_whole(self, urls: &[String], mut stuck: impl FnMut(usize)) -> Result<()> {
        let started = Instant::now();
        let mut stuck_since = vec![None; urls.len()];
        loop {
            let states = self.states(urls);
            if states.iter().all(|state| *state == State::Whole) {
                return Ok(());
            }
            ensure!(
                started.elapsed() < TIMEOUT,
                "the nodes {urls:?} do not become a whole cluster: {states:?}"
            );
            let some_are_whole = states.contains(&State::Whole);
            for (node, state) in states.into_iter().enumerate() {
                let is_stuck = match state {
                    State::Silent => true,
                    // It does not see the others, who see it.
                    State::Alone => some_are_whole,
                    State::Whole => false,
                };
                if !is_stuck {
                    stuck_since[node] = None;
                } else if stuck_since[node].get_or_insert(Instant::now()).elapsed()
                    > self.stuck_after()
                {
                    // One at a time: the others are needed to be a majority.
                    stuck(node);
                    stuck_since.fill(None);
                    break;
                }
            }
            sleep(PAUSE);
        }
    }

    /// After which time a node that does not answer, or does not see the others, is stuck. One of MySQL takes a minute to come back.
    fn stuck_after(self) -> Duration {
        Duration::from_secs(match self {
            Self::Galera | Self::Patroni => 40,
            Self::GroupReplication => 120,
        })
    }

    fn states(self, urls: &[String]) -> Vec<State> {
        let (answers, answered) = channel();
        for (node, url) in urls.iter().cloned().enumerate() {
            let (answers, nodes) = (answers.clone(), urls.len());
            thread::spawn(move || {
                // Nobody may wait for it any more.
                let _ = self
                    .state(&url, nodes)
                    .map(|state| answers.send((node, state)));
            });
        }
        drop(answers);
        let until = Instant::now() + ANSWER;
        let mut states = vec![State::Silent; urls.len()];
        while let Ok((node, state)) =
            answered.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            states[node] = state;
        }
        states
    }

    fn state(self, url: &str, nodes: usize) -> Result<State> {
        let mut conn = self.connect(url)?;
        if !self.has_primary() {
            conn.batch_execute(self.up_to_date())?;
        }
        let (ready, whole) = match self {
            Self::Galera => {
                let is = |variable: &str, value: &str| {
                    format!(
                        "(SELECT COUNT(*) FROM information_schema.global_status \
                         WHERE variable_name = '{variable}' AND variable_value = '{value}')"
                    )
                };
                (
                    is("wsrep_ready", "ON"),
                    is("wsrep_cluster_size", &nodes.to_string()),
                )
            }
            Self::GroupReplication => (
                members(ACTIVE, "member_id = @@server_uuid"),
                // One may still apply what it missed, which it does slowly while all use the processors.
                format!(
                    "({} = {nodes} AND {} >= {nodes} - 1)",
                    members(ACTIVE, "TRUE"),
                    members(ONLINE, "TRUE")
                ),
            ),
            Self::Patroni => (
                "1".to_owned(),
                format!(
                    "(SELECT CASE WHEN pg_is_in_recovery() \
                     THEN (SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming') \
                     ELSE (SELECT CAST(count(*) = {nodes} - 1 AND bool_or(sync_state IN ('sync', 'quorum')) AS integer) \
                     FROM pg_stat_replication WHERE state = 'streaming') END)"
                ),
            ),
        };
        let number = conn.number(&format!("SELECT {ready} + {ready} * {whole} AS number"))?;
        Ok(match number {
            0 => State::Silent,
            1 => State::Alone,
            _ => State::Whole,
        })
    }

    /// Has a session read nothing older than what any node has committed.
    pub(crate) fn up_to_date(self) -> &'static str {
        match self {
            Self::Galera => "SET SESSION wsrep_sync_wait = 15",
            Self::GroupReplication => "SET SESSION group_replication_consistency = 'BEFORE'",
            // Only the primary is read.
            Self::Patroni => "SELECT 1",
        }
    }

    /// Whether one node takes writes, and another after its end.
    pub(crate) fn has_primary(self) -> bool {
        self != Self::Galera
    }

    fn engine(self) -> Engine {
        match self {
            Self::Galera | Self::GroupReplication => Engine::Mysql,
            Self::Patroni => Engine::Postgres,
        }
    }

    /// A session at this URL, for questions about the cluster.
    pub(crate) fn connect(self, url: &str) -> Result<Box<dyn Sessions>> {
        with_connection!(self.engine(), C => Ok(Box::new(C::establish(url)?)))
    }

    /// Whether the server of a session takes writes.
    pub(crate) fn is_primary(self, conn: &mut dyn Sessions) -> QueryResult<bool> {
        let primary = match self {
            Self::Galera => "1".to_owned(),
            Self::GroupReplication => members(
                ONLINE,
                "member_id = @@server_uuid AND member_role = 'PRIMARY' AND NOT @@super_read_only",
            ),
            Self::Patroni => "CAST(CAST(NOT pg_is_in_recovery() AS integer) AS bigint)".to_owned(),
        };
        Ok(conn.number(&format!("SELECT {primary} AS number"))? == 1)
    }

    /// Cuts a node off from the others, or no longer; its clients still reach it. Galera's own way for tests.
    pub(crate) fn isolate(url: &str, isolate: bool) -> Result<()> {
        let (done, is_done) = channel();
        let url = url.to_owned();
        // A node that has stopped answering may not answer to this either.
        thread::spawn(move || {
            let isolate = || -> Result<()> {
                let mut conn = MysqlConnection::establish(&url)?;
                let isolate = u8::from(isolate);
                conn.batch_execute(&format!(
                    "SET GLOBAL wsrep_provider_options = 'gmcast.isolate={isolate}'"
                ))?;
                Ok(())
            };
            let _ = done.send(isolate());
        });
        is_done.recv_timeout(ANSWER)?
    }

    /// Makes the server the primary, while both work.
    pub(crate) fn promote(url: &str) -> Result<()> {
        let mut conn = MysqlConnection::establish(url)?;
        diesel::sql_query("SELECT group_replication_set_as_primary(@@server_uuid)")
            .execute(&mut conn)?;
        Ok(())
    }
}

/// States of members of Group Replication.
const ONLINE: &str = "'ONLINE'";
const ACTIVE: &str = "'ONLINE', 'RECOVERING'";

/// The number of members in these states that meet the condition.
fn members(states: &str, condition: &str) -> String {
    format!(
        "(SELECT COUNT(*) FROM performance_schema.replication_group_members \
         WHERE member_state IN ({states}) AND {condition})"
    )
}

/// How a node sees itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It does not answer, or serves nobody.
    Silent,
    /// It serves, and another does not.
    Alone,
    /// It serves, and all others are there.
    Whole,
}
