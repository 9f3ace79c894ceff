//! A headless Chromium, by its `WebDriver`.
//!
//! The protocol is JSON over HTTP, and the tests need little of it. The crates for it bring an asynchronous HTTP client,
//! and one of them a licence that this workspace does not have.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use program_support::testing::http;
use serde_json::{Value, json};

/// How long a test waits for the page to change.
const PATIENCE: Duration = Duration::from_secs(20);
/// The variables that name the programs where they are not in the `PATH`.
const BROWSER: (&str, [&str; 3]) = (
    "CHROMIUM",
    ["chromium", "chromium-browser", "google-chrome"],
);
const DRIVER: (&str, [&str; 1]) = ("CHROMEDRIVER", ["chromedriver"]);

/// A browser with one tab, which ends with this value.
pub(crate) struct Browser {
    driver: Child,
    /// Kept open: the driver may print more.
    _output: BufReader<ChildStdout>,
    address: SocketAddr,
    session: String,
}

/// Starts the driver until it gets a port: it chooses one that is free on IPv6, and ends if that one is in use on IPv4.
fn start_driver() -> (Child, BufReader<ChildStdout>, u16) {
    const ATTEMPTS: usize = 20;
    let program = program(DRIVER.0, &DRIVER.1);
    for _ in 0..ATTEMPTS {
        let mut driver = Command::new(&program)
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver starts");
        let mut output = BufReader::new(driver.stdout.take().expect("piped"));
        let port = output
            .by_ref()
            .lines()
            .map_while(Result::ok)
            .find_map(|line| {
                let (_, port) = line.split_once("started successfully on port ")?;
                port.trim_end_matches('.').parse::<u16>().ok()
            });
        if let Some(port) = port {
            return (driver, output, port);
        }
        driver.wait().expect("it has ended");
    }
    panic!("chromedriver ended {ATTEMPTS} times without printing its port");
}

impl Browser {
    /// Starts the browser.
    pub(crate) fn start() -> Self {
        let browser = program(BROWSER.0, &BROWSER.1);
        let (driver, output, port) = start_driver();
        let mut started = Self {
            driver,
            _output: output,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            session: String::new(),
        };
        // The page is the test's own. Root, and users of most containers, can't start the sandbox.
        let options = json!({
            "binary": browser,
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"],
        });
        let capabilities = json!({ "alwaysMatch": {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": { "browser": "ALL" },
        }});
        let session = started.post("/session", &json!({ "capabilities": capabilities }));
        let id = session["sessionId"].as_str().expect("a session");
        started.session = format!("/session/{id}");
        started
    }

    /// Opens a page.
    pub(crate) fn open(&self, url: &str) {
        self.post("/url", &json!({ "url": url }));
    }

    /// Shows the page in a window of this width, light or dark.
    pub(crate) fn look(&self, width: u32, scheme: &str) {
        let size =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        for (command, parameters) in [
            ("Emulation.setDeviceMetricsOverride", size),
            ("Emulation.setEmulatedMedia", scheme),
        ] {
            let command = json!({ "cmd": command, "params": parameters });
            self.post("/goog/cdp/execute", &command);
        }
    }

    /// What a script returns.
    pub(crate) fn run(&self, script: &str, arguments: &[Value]) -> Value {
        self.post(
            "/execute/sync",
            &json!({ "script": script, "args": arguments }),
        )
    }

    /// Waits until a script returns true.
    pub(crate) fn wait(&self, what: &str, script: &str, arguments: &[Value]) {
        let start = Instant::now();
        loop {
            if self.run(script, arguments) == Value::Bool(true) {
                return;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "no {what} within {PATIENCE:?}; the page shows: {}",
                self.run("return document.body.innerText", &[])
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Clicks in the middle of the element, as a pointer does: what covers it would get the click.
    pub(crate) fn click(&self, selector: &str) {
        let element = self.element(selector);
        self.post(&format!("/element/{element}/click"), &json!({}));
    }

    /// Types into the element.
    pub(crate) fn type_into(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.post(
            &format!("/element/{element}/value"),
            &json!({ "text": text }),
        );
    }

    fn element(&self, selector: &str) -> String {
        let found = self.post(
            "/element",
            &json!({ "using": "css selector", "value": selector }),
        );
        let id = found.as_object().and_then(|found| found.values().next());
        id.and_then(Value::as_str).expect("an element").to_owned()
    }

    /// Presses a key: a character, or one of `WebDriver`'s key codes.
    pub(crate) fn press(&self, key: &str) {
        let keys = json!([{ "type": "keyDown", "value": key }, { "type": "keyUp", "value": key }]);
        let source = json!({ "type": "key", "id": "keyboard", "actions": keys });
        self.post("/actions", &json!({ "actions": [source] }));
    }

    /// What the page wrote to the console since the last call, from warnings on. Failed requests are among it.
    pub(crate) fn console(&self) -> Vec<String> {
        let entries = self.post("/se/log", &json!({ "type": "browser" }));
        let entries = entries.as_array().expect("a list").iter();
        entries
            .filter(|entry| entry["level"] == "SEVERE" || entry["level"] == "WARNING")
            .map(|entry| entry["message"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// Sends a command of the session, when there is one.
    fn post(&self, path: &str, body: &Value) -> Value {
        let path = format!("{}{path}", self.session);
        let answer = http::send(self.address, "POST", &path, &[], &body.to_string()).answer();
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()["value"].take()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            // Ends the browser; without it, its processes would outlive the driver. The driver may have ended.
            let address = self.address;
            let request = format!(
                "DELETE {} HTTP/1.1\r\nHost: {address}\r\n\r\n",
                self.session
            );
            if let Ok(mut stream) = TcpStream::connect(address) {
                let _ = stream.write_all(request.as_bytes());
                let _ = BufReader::new(stream).read_line(&mut String::new());
            }
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// The path of a program.
fn program(variable: &str, names: &[&str]) -> PathBuf {
    if let Some(path) = env::var_os(variable) {
        return path.into();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let directories: Vec<_> = env::split_paths(&path).collect();
    names
        .iter()
        .flat_map(|name| directories.iter().map(move |directory| directory.join(name)))
        .find(|program| program.is_file())
        .unwrap_or_else(|| {
            panic!(
                "{} is not installed. `cargo xtask setup` installs it where apt-get has it (Debian: apt-get install \
                 chromium chromium-driver); elsewhere install Chromium and chromedriver, and set {variable} to the \
                 program's path if it is not in the PATH",
                names[0]
            )
        })
}
