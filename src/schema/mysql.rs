// @generated automatically by Diesel CLI.

diesel::table! {
    diesel_object_locks (id) {
        #[max_length = 1020]
        id -> Varbinary,
        kept -> Bool,
    }
}
