// @generated automatically by Diesel CLI.

diesel::table! {
    diesel_fences (id) {
        id -> Integer,
        fence -> BigInt,
    }
}

diesel::table! {
    diesel_object_locks (id) {
        id -> Text,
        kept -> Bool,
    }
}

diesel::table! {
    diesel_semaphores (name) {
        name -> Text,
        permits -> Integer,
    }
}

diesel::table! {
    diesel_sequences (name, scope) {
        name -> Text,
        scope -> Text,
        last -> BigInt,
    }
}

diesel::table! {
    diesel_slots (name, number) {
        name -> Text,
        number -> Integer,
        token -> Nullable<Binary>,
        holder -> Nullable<Text>,
        fence -> BigInt,
        acquired_us -> BigInt,
        expires_us -> BigInt,
        keep_us -> BigInt,
    }
}

diesel::allow_tables_to_appear_in_same_query!(
    diesel_fences,
    diesel_object_locks,
    diesel_semaphores,
    diesel_sequences,
    diesel_slots,
);
