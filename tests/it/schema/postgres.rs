// @generated automatically by Diesel CLI.

diesel::table! {
    diesel_locks_fences (id) {
        id -> Int4,
        fence -> Int8,
    }
}

diesel::table! {
    diesel_locks_objects (id) {
        #[max_length = 1020]
        id -> Varchar,
        kept -> Bool,
        advisory_key -> Int4,
    }
}

diesel::table! {
    diesel_locks_semaphores (name) {
        #[max_length = 1020]
        name -> Varchar,
        permits -> Int4,
    }
}

diesel::table! {
    diesel_locks_sequences (name, scope) {
        #[max_length = 1020]
        name -> Varchar,
        #[max_length = 1020]
        scope -> Varchar,
        last -> Int8,
    }
}

diesel::table! {
    diesel_locks_slots (name, number, fence) {
        #[max_length = 1020]
        name -> Varchar,
        number -> Int4,
        token -> Nullable<Bytea>,
        #[max_length = 1020]
        holder -> Nullable<Varchar>,
        fence -> Int8,
        acquired_us -> Int8,
        expires_us -> Int8,
        hold_until_us -> Int8,
        release_requested_us -> Int8,
        #[max_length = 1020]
        data -> Nullable<Varchar>,
    }
}

diesel::table! {
    diesel_locks_wanted (id) {
        #[max_length = 1020]
        id -> Varchar,
        until_us -> Int8,
    }
}

diesel::allow_tables_to_appear_in_same_query!(
    diesel_locks_fences,
    diesel_locks_objects,
    diesel_locks_semaphores,
    diesel_locks_sequences,
    diesel_locks_slots,
    diesel_locks_wanted,
);
