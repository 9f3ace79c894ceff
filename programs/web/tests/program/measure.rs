//! Measures health checks, and the time until a new holder is shown, on two instances under load.
//!
//! Run by hand, as docs/web-service.md says.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{get, post, post_json, send, send_document};
use crate::instance::Instance;

/// The clients that wait or store, and those that read meanwhile.
const CLIENTS: usize = 100;

/// How long health is checked while clients wait.
const WAITING: Duration = Duration::from_secs(10);

/// The pause of a client between two requests.
const PAUSE: Duration = Duration::from_millis(100);

/// The pause between two health checks.
const CHECK_PAUSE: Duration = Duration::from_millis(20);

/// How many new holders are waited for.
const HOLDERS: usize = 20;

#[test]
#[ignore = "a measurement, which is run by hand: docs/web-service.md"]
fn health_checks_and_new_holders() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("web.sqlite").display().to_string();
    let url = std::env::var("MEASURE_DATABASE_URL").unwrap_or(file);
    let instances = Instance::two(&url, &["--wait-seconds", "120", "--max-waiting", "400"]);
    println!("2 instances on {}", instances[0].state()["engine"]);

    // One client holds the lock for longer than this part takes. All hang up at its end.
    let path = "/documents/measure?hold_ms=15000";
    let body = crate::client::document(1);
    let waiting: Vec<_> = (0..=CLIENTS)
        .map(|client| {
            let address = instances[client % 2].address;
            send(address, "PUT", path, &[], body.as_bytes())
        })
        .collect();
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = SetOnDrop(&end);
        scope.spawn(|| readers(&instances, &end));
        let waits = |state: &Value| state["rates"]["waiting"].as_u64().unwrap_or(0);
        instances[0].await_state(|state| {
            waits(state) + waits(&instances[1].state()) == u64::try_from(CLIENTS).expect("few")
        });
        let deadline = Instant::now() + WAITING;
        let checks = health(&instances, || Instant::now() >= deadline);
        print("health checks while clients wait for one document", checks);
    });
    drop(waiting);
    // The holder still holds its lock, and on SQLite nobody else can write.
    assert_eq!(
        send_document(instances[0].address, "measure", 2)
            .answer()
            .status,
        200
    );

    let (end, all_shown) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let _end = SetOnDrop(&end);
        scope.spawn(|| readers(&instances, &end));
        scope.spawn(|| {
            clients(&instances, &end, |instance, client, turn| {
                let id = format!("measure-{client}");
                drop(send_document(instance.address, &id, turn).answer());
            });
        });
        let checks = scope.spawn(|| health(&instances, || all_shown.load(Ordering::Relaxed)));
        let shown = {
            let _end = SetOnDrop(&all_shown);
            new_holders(&instances)
        };
        let checks = checks.join().expect("no panic");
        print("health checks while clients store documents", checks);
        print(
            "from a grant to the other instance's event that shows its holder",
            shown,
        );
    });
}

/// Ends the clients, also after a panic.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Clients that send a request again and again, until the end: each with its number and that of its turn.
fn clients(
    instances: &[Instance; 2],
    end: &AtomicBool,
    request: impl Fn(&Instance, usize, u32) + Sync,
) {
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let request = &request;
            scope.spawn(move || {
                for turn in 0.. {
                    if end.load(Ordering::Relaxed) {
                        break;
                    }
                    request(&instances[client % 2], client, turn);
                    thread::sleep(PAUSE);
                }
            });
        }
    });
}

/// Clients that read.
fn readers(instances: &[Instance; 2], end: &AtomicBool) {
    clients(instances, end, |instance, _, _| {
        get(instance.address, "/accounts");
    });
}

/// Checks the health of both instances until the end. Returns how long each check took.
fn health(instances: &[Instance; 2], is_end: impl Fn() -> bool + Sync) -> Vec<Duration> {
    let times = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for instance in instances {
            scope.spawn(|| {
                while !is_end() {
                    let asked = Instant::now();
                    assert_eq!(get(instance.address, "/health").status, 200);
                    times.lock().expect("no panic").push(asked.elapsed());
                    thread::sleep(CHECK_PAUSE);
                }
            });
        }
    });
    times.into_inner().expect("no panic")
}

/// Starts jobs on the instances by turns, until the other one shows them. Returns how long each took.
fn new_holders(instances: &[Instance; 2]) -> Vec<Duration> {
    let mut events = instances.each_ref().map(|instance| {
        let stream = send(instance.address, "GET", "/events", &[], b"").stream();
        BufReader::new(stream)
    });
    let turns = (0..HOLDERS).map(|turn| {
        let address = instances[turn % 2].address;
        let granted = post(address, "/jobs/measure?seconds=3600").json();
        let since = Instant::now();
        let shown = shown_at(&mut events[(turn + 1) % 2], &granted["fence"]);
        let grant = json!({ "slot": granted["slot"], "fence": granted["fence"] });
        let path = "/admin/semaphores/measure/release";
        let released = post_json(address, path, &[], &json!({ "grants": [grant] }));
        assert_eq!(released.status, 200, "{released:?}");
        shown.saturating_duration_since(since)
    });
    turns.collect()
}

/// When the event arrives that shows a grant with this fence.
fn shown_at(events: &mut BufReader<TcpStream>, fence: &Value) -> Instant {
    let mut lines = events.lines().map(|line| line.expect("an event"));
    lines
        .find_map(|line| {
            let arrived = Instant::now();
            let event: Value = serde_json::from_str(line.strip_prefix("data: ")?).ok()?;
            let semaphores = event["semaphores"].as_array().into_iter().flatten();
            let mut slots = semaphores.flat_map(|it| it["slots"].as_array().into_iter().flatten());
            slots.any(|slot| slot["fence"] == *fence).then_some(arrived)
        })
        .expect("the stream does not end")
}

fn print(subject: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let millis =
        |hundredths: usize| times[(times.len() - 1) * hundredths / 100].as_secs_f64() * 1e3;
    println!(
        "{subject}: {} measured, median {:.1} ms, 99 of 100 within {:.1} ms, slowest {:.1} ms",
        times.len(),
        millis(50),
        millis(99),
        millis(100)
    );
}
