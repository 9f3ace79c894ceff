// @generated automatically by Diesel CLI.

diesel::table! {
    diesel_locks_fences (id) {
        id -> Integer,
        fence -> Bigint,
    }
}

diesel::table! {
    diesel_locks_objects (id) {
        #[max_length = 1020]
        id -> Varbinary,
        kept -> Bool,
    }
}

diesel::table! {
    diesel_locks_semaphores (name) {
        #[max_length = 1020]
        name -> Varbinary,
        permits -> Integer,
    }
}

diesel::table! {
    diesel_locks_sequences (name, scope) {
        #[max_length = 1020]
        name -> Varbinary,
        #[max_length = 1020]
        scope -> Varbinary,
        last -> Bigint,
    }
}

diesel::table! {
    diesel_locks_slots (name, number) {
        #[max_length = 1020]
        name -> Varbinary,
        number -> Integer,
        #[max_length = 16]
        token -> Nullable<Varbinary>,
        #[max_length = 1020]
        holder -> Nullable<Varbinary>,
        fence -> Bigint,
        acquired_us -> Bigint,
        expires_us -> Bigint,
        hold_until_us -> Bigint,
        release_requested_us -> Bigint,
        #[max_length = 1020]
        data -> Nullable<Varbinary>,
    }
}

diesel::table! {
    diesel_locks_wanted (id) {
        #[max_length = 1020]
        id -> Varbinary,
        until_us -> Bigint,
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
