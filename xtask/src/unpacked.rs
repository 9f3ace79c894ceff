//! Programs of other versions than the machine's, from Debian's packages: unpacked into a cache, not installed.
//!
//! What is unpacked brings its own C library, and is started by that library's loader: so it runs on whatever the
//! machine is, as any user, and leaves the machine's packages alone.

use std::env;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::unistd::geteuid;

use crate::{path_lookup, run};

/// What to unpack, and from where.
pub(crate) struct Unpacked {
    /// That of its directory in the cache.
    pub(crate) name: &'static str,
    /// The suite of Debian that has it.
    pub(crate) suite: &'static str,
    pub(crate) packages: &'static [&'static str],
    /// The directory of its programs, in what is unpacked.
    pub(crate) bin: &'static str,
    /// The programs that are run.
    pub(crate) programs: &'static [&'static str],
}

/// Where a Debian system has the keys of Debian's archive.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Where packages come from when the machine's own sources are not Debian's.
const MIRROR: &str = "http://deb.debian.org/debian";
/// Directories of packages that no program needs.
const NOT_NEEDED: [&str; 3] = ["usr/share/doc", "usr/share/man", "usr/share/perl"];

impl Unpacked {
    pub(crate) fn directory(&self) -> PathBuf {
        cache().join(self.name)
    }

    /// The directory of its programs.
    pub(crate) fn bin(&self) -> PathBuf {
        self.directory().join(self.bin)
    }

    /// Whether packages of it are available.
    pub(crate) fn is_available(&self) -> bool {
        self.directory().exists()
            || (path_lookup::find("apt-get").is_some() && Path::new(KEYS).exists())
    }

    /// Downloads and unpacks it, if that was not done before.
    pub(crate) fn fetch(&self) -> Result<()> {
        let directory = self.directory();
        if directory.exists() {
            return Ok(());
        }
        println!(
            "xtask: unpacking {} from Debian's {} in {}, which stays there; nothing is installed",
            self.packages.join(" "),
            self.suite,
            directory.display()
        );
        let parent = cache();
        fs::create_dir_all(&parent).with_context(|| parent.display().to_string())?;
        // Complete or not there: another run may want it at the same time, and a signal may end this one.
        let work = tempfile::Builder::new()
            .prefix(".unpacking-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir_in(&parent)?;
        let unpacked = work.path().join("unpacked");
        for package in self.download(work.path())? {
            run::output(
                Command::new("dpkg-deb")
                    .arg("--extract")
                    .arg(package)
                    .arg(&unpacked),
            )?;
        }
        for directory in NOT_NEEDED {
            let _ = fs::remove_dir_all(unpacked.join(directory));
        }
        self.start_by_own_loader(&unpacked)?;
        match fs::rename(&unpacked, &directory) {
            Err(error) if error.kind() != ErrorKind::DirectoryNotEmpty => {
                Err(error).with_context(|| directory.display().to_string())
            }
            _ => Ok(()),
        }
    }

    /// Downloads its packages and all that they depend on, as for a machine that has none, into `work`.
    fn download(&self, work: &Path) -> Result<Vec<PathBuf>> {
        let sources = format!("deb [signed-by={KEYS}] {} {} main\n", mirror(), self.suite);
        fs::write(work.join("sources.list"), sources)?;
        fs::write(work.join("status"), "")?;
        let archives = work.join("cache/archives");
        fs::create_dir_all(archives.join("partial"))?;
        fs::create_dir_all(work.join("state/lists/partial"))?;
        let apt = |arguments: &[&str]| {
            let mut apt = Command::new("apt-get");
            let work = work.display();
            let mut options = vec![
                format!("Dir::Etc::SourceList={work}/sources.list"),
                format!("Dir::State={work}/state"),
                format!("Dir::State::status={work}/status"),
                format!("Dir::Cache={work}/cache"),
            ];
            options.extend(APT_OPTIONS.map(str::to_owned));
            for option in options {
                apt.args(["-o", &option]);
            }
            run::output(apt.arg("-qq").args(arguments))
        };
        apt(&["update"])?;
        let install = [
            "install",
            "--yes",
            "--download-only",
            "--no-install-recommends",
        ];
        apt(&[&install, self.packages].concat())?;
        let packages: Vec<PathBuf> = fs::read_dir(&archives)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
        let packages: Vec<PathBuf> = packages
            .into_iter()
            .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .collect();
        if packages.is_empty() {
            bail!("apt-get has downloaded nothing for {}", self.name);
        }
        Ok(packages)
    }

    /// Puts a script in the place of each program, which starts it with the C library that it was unpacked with.
    fn start_by_own_loader(&self, unpacked: &Path) -> Result<()> {
        let loader = loader(unpacked)?;
        let loader = self.directory().join(loader.strip_prefix(unpacked)?);
        let libraries = loader.parent().context("a loader has a directory")?;
        for name in self.programs {
            let program = fs::canonicalize(unpacked.join(self.bin).join(name))
                .with_context(|| format!("{} has no {name}", self.name))?;
            let moved = program.with_extension("unpacked");
            fs::rename(&program, &moved)?;
            let moved = self.directory().join(moved.strip_prefix(unpacked)?);
            let script = format!(
                "#!/bin/sh\nexec '{}' --argv0 \"$0\" --library-path '{}' '{}' \"$@\"\n",
                loader.display(),
                libraries.display(),
                moved.display()
            );
            fs::write(&program, script)?;
            fs::set_permissions(&program, Permissions::from_mode(0o755))?;
        }
        Ok(())
    }
}

/// Nothing of the machine's but how it reaches the network. A mirror that was not renewed lately will do for tests.
const APT_OPTIONS: [&str; 7] = [
    "Dir::Etc::SourceParts=/dev/null",
    "Dir::Etc::Preferences=/dev/null",
    "Dir::Etc::PreferencesParts=/dev/null",
    "APT::Sandbox::User=",
    "Acquire::Check-Valid-Until=false",
    "Acquire::Languages=none",
    "Acquire::Retries=3",
];

/// Debian's mirror in the machine's own sources.
fn mirror() -> String {
    let query = [
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
        "Label: Debian",
    ];
    let printed = run::output(Command::new("apt-get").args(query)).unwrap_or_default();
    printed.lines().next().unwrap_or(MIRROR).to_owned()
}

/// The program that starts programs, and knows where libraries are.
fn loader(unpacked: &Path) -> Result<PathBuf> {
    let libraries = unpacked.join("usr/lib");
    for directory in fs::read_dir(&libraries).with_context(|| libraries.display().to_string())? {
        let directory = directory?.path();
        let files = fs::read_dir(&directory).into_iter().flatten().flatten();
        let is_loader = |name: &str| name.starts_with("ld-linux") && name.contains(".so.");
        let found = files.map(|file| file.path()).find(|path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(is_loader)
        });
        if let Some(loader) = found {
            return Ok(loader);
        }
    }
    bail!("there is no loader in {}", libraries.display())
}

/// Where what is unpacked stays: root's servers run as other users, who can't look into root's home.
fn cache() -> PathBuf {
    if geteuid().is_root() {
        return PathBuf::from("/var/cache/diesel-locks");
    }
    let own = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || env::var_os("HOME").map_or_else(env::temp_dir, PathBuf::from);
    own.unwrap_or_else(|| home().join(".cache"))
        .join("diesel-locks")
}
