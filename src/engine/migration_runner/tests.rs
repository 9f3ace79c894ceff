//! The migrations of this crate do not change.

use super::*;

/// FNV-1a, which no version of Rust changes.
fn digest(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The folders have these names, from which Diesel derives the versions, and the files, in the order of the folders, `up.sql`
/// before `down.sql`, have these digests.
///
/// After the first release neither changes: databases have run the files. A change of the tables is a new file, whose digests
/// are added at the end.
fn are_frozen<B: Dialect>(digests: [u64; 6]) {
    let migrations = sql_of::<B>(B::MIGRATIONS).expect("migrations");
    let names: Vec<&str> = migrations.iter().map(|one| &*one.name).collect();
    let expected = [
        "00000000000000-diesellocks-0001_object_locks",
        "00000000000000-diesellocks-0002_semaphores",
        "00000000000000-diesellocks-0003_sequences",
    ];
    assert_eq!(names, expected);
    for SqlMigration { version, .. } in migrations {
        let plain = |c: char| c.is_ascii_alphanumeric();
        assert!(version.chars().all(plain), "{version} in quotes");
    }
    let files: Vec<u64> = files::<B>().iter().map(|(_, text)| digest(text)).collect();
    assert_eq!(files, digests, "{files:#x?}");
}

#[cfg(feature = "_postgres")]
#[test]
fn migrations_of_postgres_are_frozen() {
    let digests = [
        0x7020_5c5d_483d_c558,
        0x09c9_e246_ffe6_6c13,
        0x89eb_6f98_ba42_b380,
        0x2c20_e2e5_5947_7735,
        0x30ba_a652_4176_633c,
        0x0892_f63d_6746_e605,
    ];
    are_frozen::<diesel::pg::Pg>(digests);
}

#[cfg(feature = "_mysql")]
#[test]
fn migrations_of_mysql_are_frozen() {
    let digests = [
        0xadf0_ef2e_22c7_58a2,
        0xc9b4_5035_d9a2_022c,
        0x781e_9110_509a_b801,
        0xfd4f_364d_12a2_bcf2,
        0xb483_600e_a3d3_ae53,
        0xdcbb_0684_53fd_ca16,
    ];
    are_frozen::<diesel::mysql::Mysql>(digests);
}

#[cfg(feature = "_sqlite")]
#[test]
fn migrations_of_sqlite_are_frozen() {
    let digests = [
        0x2890_8d1a_3544_94ac,
        0x1942_e266_b347_4a3b,
        0x5fdf_f4c0_f38e_fd02,
        0x7962_de26_fd68_cc8d,
        0x8064_7afb_d518_14de,
        0x0892_f63d_6746_e605,
    ];
    are_frozen::<diesel::sqlite::Sqlite>(digests);
}
