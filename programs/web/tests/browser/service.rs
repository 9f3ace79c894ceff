//! The service under test.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

/// An instance of the service, which is killed with this value.
pub(crate) struct Service {
    process: Child,
    /// Kept open: the service may print more.
    _output: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
}

impl Service {
    /// Starts an instance on this database. `listen` is an address; with port 0 the system chooses one.
    pub(crate) fn start(database_url: &str, listen: &str, arguments: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_web"))
            .args(["--database-url", database_url, "--listen", listen])
            .args(arguments)
            .env_remove("OPERATOR_TOKEN")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the service starts");
        let mut output = BufReader::new(process.stdout.take().expect("piped"));
        let address = output
            .by_ref()
            .lines()
            .map_while(Result::ok)
            .find_map(|line| {
                let (_, address) = line.split_once("listening on http://")?;
                address.trim().parse().ok()
            });
        let Some(address) = address else {
            let _ = process.kill();
            panic!("the service has ended: {:?}", process.wait());
        };
        Self {
            process,
            _output: output,
            address,
        }
    }

    /// The URL of the page.
    pub(crate) fn page(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// The number of the process.
    pub(crate) fn process(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
