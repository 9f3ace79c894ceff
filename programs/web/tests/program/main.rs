//! The program: its HTTP interface, driven by many clients at once, on each engine.

/// Tests that call these functions of the module with the URL of a database, on each engine.
macro_rules! on_all_engines {
    ($($test:ident),* $(,)?) => {
        program_support::on_servers!($($test),*);

        mod sqlite {
            use program_support::testing::{TempDir, path_in};

            $(
                #[test]
                fn $test() {
                    let directory = TempDir::new().expect("a directory");
                    super::$test(&path_in(&directory, "web.sqlite"));
                }
            )*
        }
    };
}

mod client;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod database_down;
mod holder;
mod instance;
mod load;
mod operator;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod proxy;
mod single;
