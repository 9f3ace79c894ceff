//! Many clients at once, and several instances on one database.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Barrier;
use std::thread;

use diesel_locks::ObjectId;
use program_support::testing::http::{Answer, get};
use program_support::testing::wait_until;

use crate::client::{post, send_document, send_transfer};
use crate::holder::Holder;
use crate::instance::Instance;

on_all_engines!(
    health_answers_while_100_of_200_clients_wait,
    a_burst_of_passes_has_no_gaps,
    transfers_keep_the_sum,
    jobs_never_exceed_the_permits,
    clients_that_hang_up_leave_nothing_behind,
    instances_are_told_apart_by_their_names,
);

/// Sends the requests of so many clients at the same moment, and returns their answers.
fn at_once(clients: usize, request: impl Fn(usize) -> Answer + Sync) -> Vec<Answer> {
    let barrier = Barrier::new(clients);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..clients)
            .map(|client| {
                let (barrier, request) = (&barrier, &request);
                scope.spawn(move || {
                    barrier.wait();
                    request(client)
                })
            })
            .collect();
        let answers = clients.into_iter().map(thread::ScopedJoinHandle::join);
        answers.map(|answer| answer.expect("a client")).collect()
    })
}

fn count(answers: &[Answer], status: u16) -> usize {
    let counted = answers.iter().filter(|answer| answer.status == status);
    counted.count()
}

/// The first answer that is no refusal: a slow database may have no connection in time.
fn get_patiently(address: SocketAddr, path: &str) -> Answer {
    let mut answer = get(address, path);
    wait_until("the database answers in time", || {
        let is_answered = answer.status != 503;
        if !is_answered {
            answer = get(address, path);
        }
        is_answered
    });
    answer
}

/// The answers of a pool that each waiter occupies come after the holder has released the lock.
fn health_answers_while_100_of_200_clients_wait(url: &str) {
    let instances = Instance::two(url, &["--wait-seconds", "120", "--max-waiting", "200"]);
    let of = |client: usize| instances[client % 2].address;
    let await_writers = || instances.iter().for_each(|it| it.await_waiting(50));
    let holder = Holder::acquire(url, ObjectId::new("Document", "wanted"));
    thread::scope(|scope| {
        let writers = scope.spawn(|| {
            at_once(100, |client| {
                send_document(of(client), "wanted", client).answer()
            })
        });
        await_writers();
        let readers = at_once(100, |client| get_patiently(of(client), "/accounts"));
        assert_eq!(count(&readers, 200), 100, "{:?}", readers[0]);
        for client in 0..40 {
            let health = get_patiently(of(client), "/health");
            assert_eq!(health.status, 200, "{health:?}");
        }
        // All of this was answered before the holder released the lock.
        await_writers();
        holder.release();
        let written = writers.join().expect("writers");
        assert_eq!(count(&written, 201), 1);
        assert_eq!(count(&written, 200) + count(&written, 204), 99);
    });
    let stored = get(instances[0].address, "/documents/wanted");
    assert!(stored.body.contains("12:01:39Z"), "{stored:?}");
}

fn a_burst_of_passes_has_no_gaps(url: &str) {
    let instances = Instance::two(url, &[]);
    let answers = at_once(60, |client| {
        post(instances[client % 2].address, "/meetings/4711/passes")
    });
    assert_eq!(count(&answers, 201), 60, "{answers:?}");
    let numbers = answers
        .iter()
        .map(|answer| answer.json()["number"].as_u64());
    let numbers: BTreeSet<_> = numbers.collect();
    assert_eq!(numbers, (1..=60).map(Some).collect());
    let shown = serde_json::json!([{ "name": "pass", "key": "4711", "last_number": "60" }]);
    instances[0].await_lists(|lists| lists["sequences"]["rows"] == shown);
}

fn transfers_keep_the_sum(url: &str) {
    let instances = Instance::two(url, &["--wait-seconds", "120"]);
    let answers = at_once(80, |client| {
        let from = i64::try_from(client % 4).expect("small") + 1;
        let to = i64::try_from(client / 4 % 4).expect("small") + 1;
        send_transfer(instances[client % 2].address, from, to).answer()
    });
    // Each account transfers to each other one, and to itself.
    assert_eq!(count(&answers, 422), 20, "{answers:?}");
    assert_eq!(count(&answers, 200), 60, "{answers:?}");
    let accounts = get(instances[0].address, "/accounts").json();
    assert_eq!(accounts["sum"], 10_000, "{accounts}");
}

fn jobs_never_exceed_the_permits(url: &str) {
    let instances = Instance::two(url, &["--permits", "3"]);
    let answers = at_once(20, |client| {
        post(instances[client % 2].address, "/jobs/collate?seconds=3600")
    });
    assert_eq!(count(&answers, 202), 3, "{answers:?}");
    assert_eq!(count(&answers, 429), 17, "{answers:?}");
    let of = |field: &str| -> BTreeSet<String> {
        let granted = answers.iter().filter(|answer| answer.status == 202);
        let values = granted.map(|answer| answer.json()[field].to_string());
        values.collect()
    };
    assert_eq!(of("slot"), ["1", "2", "3"].map(str::to_owned).into());
    assert_eq!(of("fence").len(), 3);
    // Each instance shows all holders.
    for instance in &instances {
        instance.await_lists(|lists| {
            let collate = &lists["semaphores"]["rows"][0];
            let slots = collate["slots"].as_array().into_iter().flatten();
            let fences: BTreeSet<_> = slots.map(|slot| slot["fence"].to_string()).collect();
            collate["name"] == "collate" && collate["held"] == 3 && fences == of("fence")
        });
    }
    let refused = answers.iter().find(|answer| answer.status == 429);
    let refused = refused.expect("one of 17");
    refused.assert_problem(429, "3 jobs \"collate\" run already");
    assert_eq!(refused.header("retry-after"), Some("1"));
}

fn clients_that_hang_up_leave_nothing_behind(url: &str) {
    let instance = Instance::start(url, &["--wait-seconds", "120"]);
    let holder = Holder::acquire(url, ObjectId::new("Account", 1));
    let clients: Vec<_> = (0..8)
        .map(|_| send_transfer(instance.address, 1, 2))
        .collect();
    instance.await_waiting(8);
    instance.await_lists(|lists| match url.split("://").next() {
        Some("postgres") => lists["object_locks"]["rows"][0]["session"].is_string(),
        // MariaDB shows locks for which sessions wait; these requests wait without one.
        Some("mysql") => lists["object_locks"]["total"] == 0,
        _ => lists["object_locks"]["refusal"].is_string(),
    });
    drop(clients);
    // All waits end while the lock is still held.
    instance.await_waiting(0);
    holder.release();
    assert_eq!(send_transfer(instance.address, 1, 2).answer().status, 200);
    let accounts = get(instance.address, "/accounts").json();
    assert_eq!(accounts["accounts"][0]["balance"], 999, "{accounts}");
    assert_eq!(accounts["accounts"][1]["balance"], 1001, "{accounts}");
}

fn instances_are_told_apart_by_their_names(url: &str) {
    let instances = [
        Instance::start(url, &[]),
        Instance::start(url, &[]),
        Instance::start(url, &["--name", "node 3"]),
    ];
    let name_of = |instance: &Instance| instance.state()["name"].to_string();
    let names: BTreeSet<_> = instances.iter().map(name_of).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names.contains("\"node 3\""), "{names:?}");
    for instance in &instances {
        assert_eq!(post(instance.address, "/jobs/a?seconds=3600").status, 202);
    }
    instances[0].await_lists(|lists| {
        let slots = lists["semaphores"]["rows"][0]["slots"].as_array();
        let slots = slots.into_iter().flatten();
        let holders: BTreeSet<_> = slots.map(|slot| slot["holder"].to_string()).collect();
        holders == names
    });
}
