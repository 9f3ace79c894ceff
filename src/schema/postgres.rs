// @generated automatically by Diesel CLI.

diesel::table! {
    diesel_object_locks (id) {
        #[max_length = 255]
        id -> Varchar,
        kept -> Bool,
        advisory_key -> Int4,
    }
}
