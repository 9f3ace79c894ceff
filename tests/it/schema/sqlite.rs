// @generated automatically by Diesel CLI.

diesel::table! {
    diesel_locks_fences (id) {
        id -> Integer,
        fence -> BigInt,
    }
}

diesel::table! {
    diesel_locks_objects (id) {
        id -> Text,
        kept -> Bool,
    }
}

diesel::table! {
    diesel_locks_semaphores (name) {
        name -> Text,
        permits -> Integer,
    }
}

diesel::table! {
    diesel_locks_sequences (name, scope) {
        name -> Text,
        scope -> Text,
        last -> BigInt,
    }
}

diesel::table! {
    diesel_locks_slots (name, number) {
        name -> Text,
        number -> Integer,
        token -> Nullable<Binary>,
        holder -> Nullable<Text>,
        fence -> BigInt,
        acquired_us -> BigInt,
        expires_us -> BigInt,
        hold_until_us -> BigInt,
        release_requested_us -> BigInt,
        data -> Nullable<Text>,
    }
}

diesel::allow_tables_to_appear_in_same_query!(
    diesel_locks_fences,
    diesel_locks_objects,
    diesel_locks_semaphores,
    diesel_locks_sequences,
    diesel_locks_slots,
);
